package fabric

import (
	"net/url"
	"slices"
)

// fileOptions are the options of all fabrics whose value is the path of a file that Open reads.
var fileOptions = []string{"ca", "cert", "key", "namespace_key_file", "password_file"}

// Files returns the files that Open reads for a URL: a process without the right to read them cannot open it.
func Files(rawURL string) (paths []string) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil // Open says what is wrong
	}
	for name, values := range u.Query() {
		if slices.Contains(fileOptions, name) {
			paths = append(paths, values...)
		}
	}
	slices.Sort(paths)
	return paths
}
