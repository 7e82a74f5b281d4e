package configfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOption(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("xdg/uma-serve/uma-serve.toml", "models-dir = '/xdg'\n[models.x]\nmodel = 'y'\n")
	write("home/.config/uma-serve/uma-serve.toml", "models_dir = \"/home\"\n")
	named, broken := write("named.toml", "ctx-size = 5\n"), write("broken.toml", "models-dir = = 5\n")
	xdg, home := "XDG_CONFIG_HOME="+filepath.Join(dir, "xdg"), "HOME="+filepath.Join(dir, "home")
	for _, c := range []struct {
		environ []string
		option  string
		want    string
		fails   bool
	}{
		{[]string{xdg, home}, "models-dir", "/xdg", false},
		{[]string{home}, "models-dir", "/home", false},
		{[]string{xdg, "UMA_CONFIG="}, "models-dir", "", false},
		{[]string{xdg, "UMA_CONFIG=" + named}, "models-dir", "", false},
		{[]string{xdg, "UMA_CONFIG=" + named}, "ctx-size", "5", false},
		{[]string{"UMA_CONFIG=" + broken}, "models-dir", "", true},
		{[]string{"UMA_CONFIG=" + filepath.Join(dir, "none")}, "models-dir", "", true},
	} {
		if got, err := Option(c.environ, c.option); got != c.want || (err != nil) != c.fails {
			t.Errorf("%q: %s is %q, %v; want %q", c.environ, c.option, got, err, c.want)
		}
	}
}
