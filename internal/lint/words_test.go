package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// riddles are words that stand where a sentence should name its subject: the client, the request, the goroutine.
var riddles = regexp.MustCompile(
	`(?i)\b(who was|somebody|whoever|nobody|whom|of (?:its|their) own|as (?:they|it) lies?|(?:not|only|cannot) (?:to ` +
		`)?be had)\b`)

// allowedRiddles are legitimate uses, by file: text is the use, with words around it that make it unique.
var allowedRiddles = []struct{ file, text string }{}

// words says which riddles text has. Line breaks count as spaces, so that a wrapped sentence is found as well.
func words(name, text string, allowed []struct{ file, text string }) (wrong []string) {
	for _, a := range allowed {
		if a.file == name {
			text = strings.ReplaceAll(text, a.text, strings.Repeat("_", len(a.text)))
		}
	}
	flat := strings.Join(strings.Fields(text), " ")
	for _, at := range riddles.FindAllStringIndex(flat, -1) {
		around := flat[max(at[0]-40, 0):min(at[1]+40, len(flat))]
		wrong = append(wrong, fmt.Sprintf("%s: %q in %q: name the subject", name, flat[at[0]:at[1]],
			strings.ToValidUTF8(around, "")))
	}
	return wrong
}

// spoken are folders in which every string is read by a user: help texts, descriptions of options, reasons.
func spoken(name string) bool {
	dir := path.Dir(name)
	return inside(dir, "cmd") || inside(dir, "internal/cli") || inside(dir, "metrics") ||
		name == "sched/reason/reason.go" || inside(dir, "daemon/config")
}

// errorStrings are the texts of errors that s makes, and all texts where users read all of them.
func errorStrings(s source) (texts []string) {
	literal := func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil {
				texts = append(texts, text)
			}
		}
		return true
	}
	if spoken(s.path) {
		ast.Inspect(s.file, literal)
		return texts
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if f, ok := call.Fun.(*ast.SelectorExpr); ok {
			if x, ok := f.X.(*ast.Ident); ok &&
				(x.Name == "errors" && f.Sel.Name == "New" || x.Name == "fmt" && f.Sel.Name == "Errorf") {
				for _, arg := range call.Args {
					ast.Inspect(arg, literal)
				}
			}
		}
		return true
	})
	return texts
}

// TestUsersReadPlainEnglish: README, documents, help texts and errors name the subject of each sentence.
func TestUsersReadPlainEnglish(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	used, documents := map[string]bool{}, 0
	try := func(name, text string) {
		for _, a := range allowedRiddles {
			used[a.file+a.text] = used[a.file+a.text] || a.file == name && strings.Contains(text, a.text)
		}
		for _, wrong := range words(name, text, allowedRiddles) {
			t.Error(wrong)
		}
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "docs/lab/*.md", "models/*.md",
		"examples/*", "contrib/*", "contrib/*/*", "contrib/*/*/*",
		"cmd/*/testdata/help/*.txt", "cmd/uma-cli/internal/chat/testdata/*.txt"} {
		names, err := fs.Glob(root, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if st, err := fs.Stat(root, name); err != nil || st.IsDir() {
				continue
			}
			text, err := fs.ReadFile(root, name)
			if err != nil {
				t.Fatal(err)
			}
			documents++
			try(name, string(text))
		}
	}
	if documents < 30 {
		t.Errorf("only %d documents found: the patterns are wrong", documents)
	}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, text := range errorStrings(s) {
			try(s.path, text)
		}
	}
	for _, a := range allowedRiddles {
		if !used[a.file+a.text] {
			t.Errorf("%s no longer says %q: remove it from the allowed ones", a.file, a.text)
		}
	}
}

// form says what is wrong with the form of a document: the lines of its prose, and for an ADR its sections.
func form(name, text string) (wrong []string) {
	code := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if n := utf8.RuneCountInString(line); n > 120 && !code && !strings.HasPrefix(line, "|") {
			wrong = append(wrong, fmt.Sprintf("%s:%d has %d columns; the maximum is 120", name, i+1, n))
		}
	}
	if path.Dir(name) != "docs/adr" {
		return wrong
	}
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(text, -1) {
		sections = append(sections, m[1])
	}
	if got := strings.Join(sections, ", "); got != "Context, Decision, Consequences" {
		wrong = append(wrong, fmt.Sprintf("%s has the sections %s; an ADR has Context, Decision, Consequences", name,
			got))
	}
	if number, _, _ := strings.Cut(path.Base(name), "-"); !strings.HasPrefix(text, "# ADR-"+number+": ") ||
		!strings.Contains(text, "\n\nStatus: ") {
		wrong = append(wrong, fmt.Sprintf("%s begins with neither # ADR-%s: nor a line with its status", name, number))
	}
	return wrong
}

// TestDocumentsHaveOneForm: prose ends at 120 columns, and ADRs have the same sections.
func TestDocumentsHaveOneForm(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "docs/lab/*.md", "models/*.md",
		"examples/*.md"} {
		names, err := fs.Glob(root, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := fs.ReadFile(root, name)
			if err != nil {
				t.Fatal(err)
			}
			for _, wrong := range form(name, string(text)) {
				t.Error(wrong)
			}
		}
	}
	adr := "# ADR-0001: x\n\nStatus: accepted.\n\n## Context\n\n## Decision\n\n## Consequences\n"
	long := strings.Repeat("ü", 121)
	for text, want := range map[string]string{
		adr: "", adr + "| " + long + " |\n```\n" + long + "\n```\n": "",
		adr + long: "121 columns",
		strings.Replace(adr, "Context", "Why", 1): "has the sections Why, Decision",
		strings.Replace(adr, "ADR-0001", "1", 1):  "begins with neither",
		strings.Replace(adr, "Status", "Date", 1): "begins with neither",
	} {
		if wrong := strings.Join(form("docs/adr/0001-x.md", text), "\n"); want == "" && wrong != "" ||
			!strings.Contains(wrong, want) {
			t.Errorf("%q is answered %q, want %q", text, wrong, want)
		}
	}
}

// sourcePath is a file with its folder, as documents name one in backticks.
var sourcePath = regexp.MustCompile("`([a-z_]+/[a-z0-9_/.-]+\\.(?:go|sh|mjs|txt|toml|cpp))`")

// TestDocumentedFilesExist: a file that a document names with its folder is there.
func TestDocumentedFilesExist(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	found := 0
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md"} {
		names, err := fs.Glob(root, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := fs.ReadFile(root, name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range sourcePath.FindAllSubmatch(text, -1) {
				found++
				if _, err := fs.Stat(root, string(m[1])); err != nil {
					t.Errorf("%s names %s, which is not there", name, m[1])
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("the documents name %d files: the pattern finds too few", found)
	}
}

// question is a row of "Twenty questions" in docs/ARCHITECTURE.md.
var question = regexp.MustCompile("(?m)^\\| [^|]+\\? \\| `([^`|]+)` \\| `([^`|]+)` \\|$")

// TestTwentyQuestions: each question has one file, which has the name to begin with; a token's path has 12 files at
// most.
func TestTwentyQuestions(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	page, err := fs.ReadFile(root, "docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := question.FindAllSubmatch(page, -1)
	if len(rows) < 20 {
		t.Errorf("the page answers %d questions", len(rows))
	}
	for _, row := range rows {
		source, err := fs.ReadFile(root, string(row[1]))
		if err != nil {
			t.Error(err)
		} else if !regexp.MustCompile(`\b` + regexp.QuoteMeta(string(row[2])) + `\b`).Match(source) {
			t.Errorf("%s has no %s", row[1], row[2])
		}
	}
	_, path, _ := strings.Cut(string(page), "A generated token touches")
	path, _, ok := strings.Cut(path, "\n\n")
	if n := len(sourcePath.FindAllString(path, -1)); !ok || n == 0 || n > 12 {
		t.Errorf("a token's path has %d files", n)
	}
}

// TestRiddlesAreFound: the rule refuses each word, in documents and in sources, and accepts a plain sentence.
func TestRiddlesAreFound(t *testing.T) {
	for _, text := range []string{
		"Cells can be given to nobody.", "Somebody else's prompt.", "for whoever asks",
		"who was refused one longest ago", "Whom the handler woke",
		"a daemon of its own", "streams of their own", "hashed as they lie in the file", "It is not to be had.",
		"an end that\n  nobody sees", "of\tits\nown",
	} {
		if len(words("x.md", text, nil)) != 1 {
			t.Errorf("%q is accepted", text)
		}
		for _, file := range []string{"daemon/x.go", "cmd/uma-cli/x.go"} {
			s, err := parse(token.NewFileSet(), file, fmt.Sprintf("package p\nvar err = errors.New(%q)\n", text))
			if err != nil {
				t.Fatal(err)
			}
			if got := errorStrings(s); len(got) != 1 || got[0] != text {
				t.Errorf("%s: the texts are %q, want %q", file, got, text)
			}
		}
	}
	for _, text := range []string{"Pinned cells are unavailable to other requests.", "The owner of the file.",
		"Anybody"} {
		if wrong := words("x.md", text, nil); len(wrong) > 0 {
			t.Errorf("%q is refused: %v", text, wrong)
		}
	}
	s, err := parse(token.NewFileSet(), "daemon/x.go",
		"package p\n\n// whoever\nvar prompt = \"nobody\"\nvar err = fmt.Errorf(\"x: %w\", y)\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := errorStrings(s); len(got) != 1 || got[0] != "x: %w" {
		t.Errorf("the texts outside of what users read are %q", got)
	}
	allowed := []struct{ file, text string }{{"x.md", "nobody's fool"}}
	if wrong := words("x.md", "nobody's fool", allowed); len(wrong) > 0 {
		t.Errorf("an allowed use is refused: %v", wrong)
	}
	if wrong := words("y.md", "nobody's fool", allowed); len(wrong) != 1 {
		t.Error("what one file may say is accepted in another")
	}
	if wrong := words("x.md", "nobody's fool, and nobody", allowed); len(wrong) != 1 {
		t.Error("beside an allowed use another one is accepted")
	}
}
