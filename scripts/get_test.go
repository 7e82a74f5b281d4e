package scripts

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/release/releasetest"
)

// getHome is a user's home for get.sh, with a release that holds the real uma-cli and a uma-serve that only starts.
type getHome struct {
	home, script string
	signer       *releasetest.Signer
	files        map[string][]byte // of the release
	server       *httptest.Server
	env          []string
}

func newGetHome(t *testing.T) *getHome {
	if runtime.GOOS != "linux" {
		t.Skip("the archives of this test are for Linux")
	}
	g := &getHome{home: t.TempDir(), signer: releasetest.NewSigner(1)}
	var err error
	if g.script, err = filepath.Abs("get.sh"); err != nil {
		t.Fatal(err)
	}
	g.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, ok := g.files[strings.TrimPrefix(r.URL.Path, "/")]; ok {
			w.Write(b)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(g.server.Close)
	g.env = []string{"HOME=" + g.home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(),
		// Also for root, whose models are the system's otherwise.
		"XDG_DATA_HOME=" + g.home + "/.local/share", "XDG_RUNTIME_DIR=" + g.home + "/run"}
	return g
}

// release makes the archive of a version. uma-cli is the built one, with that version.
func (g *getHome) release(t *testing.T, version string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "uma-cli")
	build := exec.Command("go", "build", "-o", program, "-ldflags",
		"-s -w -X github.com/uma-serve/uma-serve/internal/cli/buildinfo.Version="+version, "../cmd/uma-cli")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build uma-cli: %v: %s", err, out)
	}
	cli, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	top := "uma-serve-" + version + "-linux-" + runtime.GOARCH + "/"
	archive := releasetest.Archive(t, map[string]string{top + "bin/uma-cli": string(cli),
		top + "bin/uma-serve": "#!/bin/sh\necho " + version + "\n", top + "share/man/man1/uma-cli.1": "man",
		top + "contrib/systemd/user/uma-serve.service": "", top + "contrib/systemd/user/uma-serve.socket": ""})
	g.files = releasetest.Release(g.signer,
		map[string][]byte{"uma-serve-" + version + "-linux-" + runtime.GOARCH + ".tar.gz": archive})
}

// run runs a program as the user, and returns what it says.
func (g *getHome) run(name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Env, c.Dir = g.env, g.home
	out, err := c.CombinedOutput()
	return string(out), err
}

func (g *getHome) get(args ...string) (string, error) {
	return g.run("sh", append([]string{g.script, "--prefix", filepath.Join(g.home, ".local"), "--from", g.server.URL,
		"--key", g.signer.Public()}, args...)...)
}

// left lists what is below the home.
func (g *getHome) left(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(g.home, func(path string, _ os.DirEntry, err error) error {
		if path != g.home {
			paths = append(paths, strings.TrimPrefix(path, g.home+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(paths, func(p string) bool { return p == ".local" })
}

func TestGetInstallsUpgradesAndRemoves(t *testing.T) {
	g := newGetHome(t)
	g.release(t, "v1.0.0")
	if out, err := g.get("--no-service"); err != nil || !strings.Contains(out, "installed in") {
		t.Fatalf("get.sh: %v: %s", err, out)
	}
	serve, cli := filepath.Join(g.home, ".local/bin/uma-serve"), filepath.Join(g.home, ".local/bin/uma-cli")
	version := func(want string) {
		t.Helper()
		if out, err := g.run(serve, "--version"); err != nil || strings.TrimSpace(out) != want {
			t.Errorf("uma-serve --version: %q, %v; want %s", out, err, want)
		}
	}
	version("v1.0.0")
	if out, err := g.run(cli, "upgrade"); err != nil || !strings.Contains(out, "is the newest") {
		t.Errorf("upgrade without a newer release: %v: %s", err, out)
	}
	g.release(t, "v1.1.0")
	if out, err := g.run(cli, "upgrade", "--check"); err != nil || !strings.Contains(out, "v1.1.0 is available") {
		t.Errorf("upgrade --check: %v: %s", err, out)
	}
	if out, err := g.run(cli, "upgrade"); err != nil {
		t.Fatalf("upgrade: %v: %s", err, out)
	}
	version("v1.1.0")
	if out, err := g.run(cli, "upgrade", "--rollback"); err != nil {
		t.Errorf("upgrade --rollback: %v: %s", err, out)
	}
	version("v1.0.0")
	// A release of an attacker who has the server and not the key.
	g.release(t, "v1.2.0")
	g.files["SHA256SUMS.sig"] = releasetest.NewSigner(2).Sign(g.files["SHA256SUMS"], "uma-serve")
	if out, err := g.run(cli, "upgrade"); err == nil || !strings.Contains(out, "signature") {
		t.Errorf("upgrade to a forged release: %v: %s", err, out)
	}
	version("v1.0.0")
	g.release(t, "v0.9.0")
	if out, err := g.run(cli, "upgrade"); err == nil || !strings.Contains(out, "--allow-downgrade") {
		t.Errorf("upgrade to an older release: %v: %s", err, out)
	}
	model := filepath.Join(g.home, ".local/share/uma-serve/models/m.gguf")
	if err := os.MkdirAll(filepath.Dir(model), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(model, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := g.get("--uninstall", "--purge"); err == nil || !strings.Contains(out, "--yes") {
		t.Errorf("--purge without --yes: %v: %s", err, out)
	}
	if out, err := g.get("--uninstall"); err != nil || !strings.Contains(out, "kept: "+filepath.Dir(model)) {
		t.Errorf("--uninstall: %v: %s", err, out)
	}
	want := []string{".local/share", ".local/share/uma-serve", ".local/share/uma-serve/models",
		".local/share/uma-serve/models/m.gguf"}
	if left := g.left(t); !slices.Equal(left, want) {
		t.Errorf("left behind: %q", left)
	}
	g.release(t, "v1.0.0")
	if out, err := g.get("--no-service"); err != nil {
		t.Fatalf("get.sh again: %v: %s", err, out)
	}
	if out, err := g.get("--uninstall", "--purge", "--yes"); err != nil {
		t.Errorf("--uninstall --purge --yes: %v: %s", err, out)
	}
	if left := g.left(t); len(left) > 0 && !slices.Equal(left, []string{".local/share"}) {
		t.Errorf("left behind by --purge: %q", left)
	}
}

func TestGetRefuses(t *testing.T) {
	g := newGetHome(t)
	g.release(t, "v1.0.0")
	good := g.files
	archive := "uma-serve-v1.0.0-linux-" + runtime.GOARCH + ".tar.gz"
	with := func(name string, content []byte) map[string][]byte {
		files := map[string][]byte{name: content}
		for k, v := range good {
			if _, ok := files[k]; !ok {
				files[k] = v
			}
		}
		return files
	}
	forged := releasetest.NewSigner(2).Sign(good["SHA256SUMS"], "uma-serve")
	tampered := slices.Clone(good[archive])
	tampered[len(tampered)/2] ^= 1
	for name, c := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"tampered archive":   {with(archive, tampered), "SHA-256"},
		"truncated archive":  {with(archive, good[archive][:1000]), "SHA-256"},
		"forged sums":        {with("SHA256SUMS", slices.Concat(good["SHA256SUMS"], []byte("x"))), "signature"},
		"another's key":      {with("SHA256SUMS.sig", forged), "signature"},
		"no signature":       {with("SHA256SUMS.sig", nil), "signature"},
		"for another system": {releasetest.Release(g.signer, nil), "no archive"},
		"nothing there":      {nil, "cannot download"},
	} {
		for _, verifier := range []string{"ssh-keygen", "openssl"} {
			path := restricted(t, verifier)
			g.files, g.env[1] = c.files, "PATH="+path
			out, err := g.get("--no-service")
			if _, ok := errors.AsType[*exec.ExitError](err); !ok || !strings.Contains(out, c.want) {
				t.Errorf("%s, verified by %s: %v: %s", name, verifier, err, out)
			}
			if left := g.left(t); len(left) > 0 {
				t.Errorf("%s: left behind: %q", name, left)
			}
		}
	}
	// Both verifiers take what is right.
	for _, verifier := range []string{"ssh-keygen", "openssl"} {
		g.files, g.env[1] = good, "PATH="+restricted(t, verifier)
		if out, err := g.get("--no-service"); err != nil {
			t.Errorf("verified by %s: %v: %s", verifier, err, out)
		}
		if out, err := g.get("--uninstall"); err != nil {
			t.Errorf("uninstall: %v: %s", err, out)
		}
	}
	// A script that a connection cut off does nothing.
	script, err := os.ReadFile(g.script)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []int{2, 3, 10} {
		c := exec.Command("sh")
		c.Stdin, c.Env = bytes.NewReader(script[:len(script)*(part-1)/part]), g.env
		_ = c.Run() // a syntax error, or nothing
		if left := g.left(t); len(left) > 0 {
			t.Errorf("a script cut off after %d of %d parts: left behind: %q", part-1, part, left)
		}
	}
}

// restricted returns a PATH with what get.sh needs, and one program that verifies signatures.
func restricted(t *testing.T, verifier string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sh", "cat", "cut", "sed", "grep", "head", "tail", "tr", "wc", "tar", "gzip",
		"mktemp", "rm", "rmdir", "mkdir", "uname", "id", "curl", "sha256sum", "base64", "dirname", verifier} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("%s is not installed", name)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestGetWithoutSpace: the disk fills while the archive is unpacked.
func TestGetWithoutSpace(t *testing.T) {
	g := newGetHome(t)
	g.release(t, "v1.0.0")
	full := filepath.Join(t.TempDir(), "bin")
	if err := os.MkdirAll(full, 0o755); err != nil {
		t.Fatal(err)
	}
	tar := "#!/bin/sh\necho 'tar: write error: No space left on device' >&2\nexit 2\n"
	if err := os.WriteFile(filepath.Join(full, "tar"), []byte(tar), 0o755); err != nil {
		t.Fatal(err)
	}
	g.env[1] = "PATH=" + full + ":" + os.Getenv("PATH")
	out, err := g.get("--no-service")
	if err == nil || !strings.Contains(out, "No space left") {
		t.Errorf("%v: %s", err, out)
	}
	if left := g.left(t); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestShellcheck(t *testing.T) {
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("shellcheck is not installed")
	}
	for _, script := range []string{"get.sh", "stage.sh", "release.sh", "reproducible.sh", "package.sh"} {
		if out, err := exec.Command("shellcheck", "-S", "warning", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %s", script, out)
		}
	}
}
