package release

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Archive is a line of SHA256SUMS that names an archive.
type Archive struct {
	Name    string // of the file
	Version string
	System  string // GOOS-GOARCH, perhaps with a level of the processor: linux-amd64-v2
	SHA256  string // in hexadecimal digits
}

// maxSums is the number of lines of a SHA256SUMS that are read.
const maxSums = 1000

var archiveName = regexp.MustCompile(
	`^uma-serve-([0-9A-Za-z][0-9A-Za-z.+~-]{0,100})-((?:linux|darwin)-(?:amd64|arm64)(?:-v[0-9])?)\.tar\.gz$`)

// ParseSums returns the archives that the text of a SHA256SUMS names. Other files are left out.
func ParseSums(text string) ([]Archive, error) {
	var list []Archive
	lines := 0
	for line := range strings.Lines(text) {
		if lines++; lines > maxSums {
			return nil, fmt.Errorf("SHA256SUMS has more than %d lines", maxSums)
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			continue
		}
		sum, name, ok := strings.Cut(line, "  ")
		if b, err := hex.DecodeString(sum); !ok || err != nil || len(b) != 32 {
			return nil, fmt.Errorf("SHA256SUMS line %d is %.80q; it must be 64 hexadecimal digits, two blanks, a name",
				lines, line)
		}
		if m := archiveName.FindStringSubmatch(name); m != nil {
			list = append(list, Archive{Name: name, Version: m[1], System: m[2], SHA256: strings.ToLower(sum)})
		}
	}
	return list, nil
}

// Choose returns the archive for the first of systems that has one.
func Choose(list []Archive, systems []string) (Archive, error) {
	for _, system := range systems {
		for _, a := range list {
			if a.System == system {
				return a, nil
			}
		}
	}
	var have []string
	for _, a := range list {
		have = append(have, a.System)
	}
	return Archive{}, fmt.Errorf("the release has no archive for %s (it has: %s); build from source: "+
		"scripts/get.sh --source", strings.Join(systems, " or "), cmp.Or(strings.Join(have, ", "), "none"))
}

// Systems lists the archives that fit a machine, the best first. avx2: an amd64 processor has AVX2 and FMA.
func Systems(goos, goarch string, avx2 bool) []string {
	plain := goos + "-" + goarch
	switch {
	case goarch == "amd64" && avx2:
		return []string{plain, plain + "-v2"}
	case goarch == "amd64":
		return []string{plain + "-v2"}
	}
	return []string{plain}
}

// Older reports whether version a is older than b. Versions are written by git describe: v1.2.3-4-gCOMMIT is four
// commits behind v1.2.3; v1.2.3-rc.1 precedes it. known is false where one of them has another form: they cannot be
// compared.
func Older(a, b string) (older, known bool) {
	x, ok := parseVersion(a)
	y, ok2 := parseVersion(b)
	if !ok || !ok2 {
		return false, false
	}
	for i := range x {
		if x[i] != y[i] {
			return x[i] < y[i], true
		}
	}
	return false, true
}

var describe = regexp.MustCompile(
	`^v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(-(?:rc|beta|alpha)\.?(\d{1,6}))?(?:-(\d{1,6})-g[0-9a-f]+)?(?:-dirty)?$`)

// parseVersion returns major, minor, patch, candidate (above all candidates for a final version), commits.
func parseVersion(s string) (v [5]int, ok bool) {
	m := describe.FindStringSubmatch(s)
	if m == nil {
		return v, false
	}
	number := func(text string) int {
		n, _ := strconv.Atoi(text) // digits, or "" = 0
		return n
	}
	v = [5]int{number(m[1]), number(m[2]), number(m[3]), 1 << 30, number(m[6])}
	if m[4] != "" {
		v[3] = number(m[5])
	}
	return v, true
}
