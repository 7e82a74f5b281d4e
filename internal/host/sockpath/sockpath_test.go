package sockpath

import "testing"

func TestDefault(t *testing.T) {
	for _, c := range []struct {
		goos     string
		uid      int
		xdg, tmp string
		want     string
	}{
		{"linux", 1000, "/run/user/1000", "", "/run/user/1000/uma-serve/uma.sock"},
		{"linux", 0, "/run/user/0", "", "/run/user/0/uma-serve/uma.sock"},
		{"linux", 0, "", "/tmp/x", "/run/uma-serve/uma.sock"},
		{"linux", 1000, "", "", "/tmp/uma-serve-1000/uma.sock"},
		{"linux", 1000, "relative", "relative", "/tmp/uma-serve-1000/uma.sock"},
		{"linux", 1000, "", "/scratch", "/scratch/uma-serve-1000/uma.sock"},
		{"darwin", 501, "", "/var/folders/zz/q/T/", "/var/folders/zz/q/T/uma-serve/uma.sock"},
		{"darwin", 501, "", "", "/tmp/uma-serve-501/uma.sock"},
		{"darwin", 0, "", "", "/var/run/uma-serve/uma.sock"},
	} {
		env := map[string]string{"XDG_RUNTIME_DIR": c.xdg, "TMPDIR": c.tmp}
		if got := path(c.goos, c.uid, func(k string) string { return env[k] }); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
