package chat

import (
	"bufio"
	"errors"
	"io"
	"strings"

	"github.com/reeflective/readline"
)

// ErrInterrupt is Ctrl-C at the prompt.
var ErrInterrupt = errors.New("interrupted")

// LineReader reads what the user types. io.EOF is Ctrl-D or the end of the input, ErrInterrupt Ctrl-C.
type LineReader interface {
	ReadLine(prompt string) (string, error)
}

// editor is the line editor of a terminal: history, completion, several lines, bracketed paste, wide characters.
// It holds the terminal in raw mode only while it reads, so that Ctrl-C during an answer is a SIGINT.
type editor struct {
	shell  *readline.Shell
	prompt string
}

// rowsBelow scrolls the window up as far as needed for two rows below the cursor, which stays on its text: IND is a step
// down that scrolls (VT100). Two, because the library takes one itself when a line ends at the right edge.
const rowsBelow = "\x1bD\x1bD\x1b[2A"

// NewEditor is a LineReader on the process's terminal. complete gives the words that may stand at the end of line.
func NewEditor(h *History, complete func(line string) []string) LineReader {
	e := &editor{shell: readline.NewShell()}
	e.shell.Config.Set("enable-bracketed-paste", true)
	// The library would ask the terminal for the cursor's position at every prompt and drop the keys that arrive in
	// one read with the answer; a terminal that does not answer would hang it. Prompts here begin a line.
	e.shell.Config.Set("cursor-position-probe", false)
	// Without the answer the library does not know that it is on the last row of the window, where a step down is none:
	// it would clear the prompt that it has just drawn and go on a row too high. So there are always rows below.
	e.shell.SyntaxHighlighter = func(line []rune) string { return string(line) + rowsBelow }
	e.shell.Prompt.Primary(func() string { return e.prompt })
	e.shell.History.Delete()
	e.shell.History.Add("chat", h)
	e.shell.AcceptMultiline = func(line []rune) bool { return !openQuotes(string(line)) }
	e.shell.Completer = func(line []rune, cursor int) readline.Completions {
		before := string(line[:min(max(cursor, 0), len(line))])
		return readline.CompleteValues(complete(before)...)
	}
	return e
}

func (e *editor) ReadLine(prompt string) (string, error) {
	e.prompt = prompt
	line, err := e.shell.Readline()
	if errors.Is(err, readline.ErrInterrupt) {
		err = ErrInterrupt
	}
	return line, err
}

// NewPlainReader is a LineReader without editing, for TERM=dumb and for tests. It shows prompts on out.
func NewPlainReader(in io.Reader, out io.Writer) LineReader {
	return &plainReader{in: bufio.NewReader(in), out: out}
}

type plainReader struct {
	in  *bufio.Reader
	out io.Writer
}

func (p *plainReader) ReadLine(prompt string) (string, error) {
	if _, err := io.WriteString(p.out, prompt); err != nil {
		return "", err
	}
	var text strings.Builder
	for {
		line, err := p.in.ReadString('\n')
		text.WriteString(line)
		if err != nil {
			if err == io.EOF && text.Len() > 0 {
				return text.String(), nil
			}
			return "", err
		}
		if openQuotes(text.String()) {
			continue
		}
		return strings.TrimSuffix(text.String(), "\n"), nil
	}
}

const tripleQuote = `"""`

// openQuotes reports whether text begins a message of several lines and does not end it yet.
func openQuotes(text string) bool {
	text = strings.TrimLeft(text, " \t")
	rest, ok := strings.CutPrefix(text, tripleQuote)
	return ok && !strings.Contains(rest, tripleQuote)
}

// unquote is a message without the quotes of a multi-line one.
func unquote(text string) string {
	trimmed := strings.TrimSpace(text)
	rest, ok := strings.CutPrefix(trimmed, tripleQuote)
	if !ok {
		return text
	}
	body, after, _ := strings.Cut(rest, tripleQuote)
	body = strings.TrimPrefix(body, "\n")
	body = strings.TrimSuffix(body, "\n")
	if after = strings.TrimSpace(after); after != "" {
		body += "\n" + after
	}
	return body
}
