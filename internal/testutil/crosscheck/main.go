// Command crosscheck reports what does not compile for another system: crosscheck GOOS/GOARCH PATTERN… checks the
// types of the packages and of their tests, without cgo. It reads sources only, in seconds: `go vet` would first
// compile every dependency for that system.
package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: crosscheck GOOS/GOARCH PATTERN…")
		os.Exit(2)
	}
	n, err := check("", os.Args[1], os.Args[2:], os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "crosscheck:", err)
	}
	if err != nil || n > 0 {
		os.Exit(1)
	}
}

// check writes a line for each error of the packages that patterns name in dir, and returns the number of errors.
func check(dir, target string, patterns []string, w io.Writer) (errs int, err error) {
	system, arch, ok := strings.Cut(target, "/")
	if !ok {
		return 0, fmt.Errorf("%q is not of the form GOOS/GOARCH", target)
	}
	cfg := &packages.Config{
		Dir: dir, Tests: true, Env: append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0"),
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo |
			packages.NeedTypesSizes | packages.NeedModule,
	}
	roots, err := packages.Load(cfg, patterns...)
	if err != nil {
		return 0, err
	}
	if len(roots) == 0 {
		return 0, fmt.Errorf("no package matches %s", strings.Join(patterns, " "))
	}
	seen := map[string]bool{}
	for _, p := range roots {
		for _, e := range p.Errors {
			// A package whose files are all for other systems is left out by go build ./..., too.
			line := fmt.Sprintf("%s: %s: %s", target, cmp.Or(e.Pos, p.PkgPath), e.Msg)
			if strings.Contains(e.Msg, "build constraints exclude all Go files") || seen[line] {
				continue
			}
			seen[line] = true
			fmt.Fprintln(w, line)
		}
	}
	return len(seen), nil
}
