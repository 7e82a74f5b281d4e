// Command testreport summarises `go test -json` from stdin on stdout: a line for each package, the failures, and at the
// end the skipped tests with their reasons and the slowest packages. go test itself lists skipped tests only with -v.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := report(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // s
}

const slowest = 8 // packages that are named at the end

// place matches the source position before a test's message.
var place = regexp.MustCompile(`^\s+\w+\.go:\d+: `)

// report returns an error when it cannot read in; whether tests failed is go test's exit status.
func report(in io.Reader, out io.Writer) error {
	type key struct{ pkg, test string }
	said := map[key][]string{}   // what tests that run wrote, by line
	skips := map[string]int{}    // "package test: reason"
	took := map[string]float64{} // s by package
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Action == "" {
			fmt.Fprintln(out, lines.Text()) // not go test's: what went wrong before it
			continue
		}
		k := key{e.Package, e.Test}
		switch {
		case e.Action == "build-output":
			fmt.Fprint(out, e.Output)
		case e.Action == "output":
			said[k] = append(said[k], e.Output)
		case e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
			lines := said[k]
			if e.Action == "fail" { // what a panic or the time limit left unfinished is part of it
				for _, t := range slices.SortedFunc(maps.Keys(said),
					func(a, b key) int { return cmp.Compare(a.test, b.test) }) {
					if t.pkg == e.Package && t.test != "" {
						fmt.Fprint(out, strings.Join(said[t], ""))
					}
				}
				fmt.Fprint(out, strings.Join(lines, ""))
			} else if e.Action == "pass" && len(lines) > 0 {
				fmt.Fprint(out, lines[len(lines)-1])
			}
			maps.DeleteFunc(said, func(t key, _ []string) bool { return t.pkg == e.Package })
			took[e.Package] = e.Elapsed
		case e.Action == "skip":
			reason := "no reason"
			for _, l := range said[k] {
				if place.MatchString(l) {
					reason = strings.TrimSpace(place.ReplaceAllString(l, ""))
				}
			}
			test, _, _ := strings.Cut(e.Test, "/")
			skips[fmt.Sprintf("%s %s: %s", e.Package, test, reason)]++
			delete(said, k)
		case e.Action == "pass":
			delete(said, k)
		}
	}
	if len(skips) > 0 {
		fmt.Fprintf(out, "\nSKIPPED, and so not tested:\n")
		for _, s := range slices.Sorted(maps.Keys(skips)) {
			if n := skips[s]; n > 1 {
				s += fmt.Sprintf(" (%d times)", n)
			}
			fmt.Fprintf(out, "  %s\n", s)
		}
	}
	packages := slices.SortedFunc(maps.Keys(took),
		func(a, b string) int { return cmp.Or(-cmp.Compare(took[a], took[b]), cmp.Compare(a, b)) })
	if len(packages) > 0 {
		fmt.Fprintf(out, "\nthe slowest of %d packages:\n", len(packages))
		for _, p := range packages[:min(slowest, len(packages))] {
			fmt.Fprintf(out, "  %6.1f s  %s\n", took[p], p)
		}
	}
	return lines.Err()
}
