package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func program() *cobra.Command {
	root := &cobra.Command{Use: "prog", Short: "do things", Long: "prog does things.\n  prog --a   one\n  prog --b   " +
		"two\n" +
		"It does them well.", Run: func(*cobra.Command, []string) {}, SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}}
	root.Flags().Bool("fast", false, "do them at once")
	root.AddCommand(&cobra.Command{Use: "sub", Short: "do one", Run: func(*cobra.Command, []string) {}},
		ManPagesCommand("prog", func(err error) error { return errors.Join(errors.New("usage"), err) }))
	return root
}

func TestPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	root := program()
	root.SetArgs([]string{"man-pages", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "prog.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".TH \"PROG\" \"1\"", "prog --a   one\nprog --b   two\n", "do them at once",
		"prog-sub(1)"} {
		if !strings.Contains(strings.ReplaceAll(string(page), "\\", ""), want) {
			t.Errorf("no %q in the page:\n%s", want, page)
		}
	}
	if pages, _ := filepath.Glob(filepath.Join(dir, "*")); len(pages) != 2 {
		t.Errorf("pages %q", pages)
	}
}

func TestNeedsADirectory(t *testing.T) {
	root := program()
	root.SetArgs([]string{"man-pages"})
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "usage") {
		t.Errorf("%v", err)
	}
}
