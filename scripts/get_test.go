package scripts

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uma-serve/uma-serve/internal/release"
	"github.com/uma-serve/uma-serve/internal/release/releasetest"
)

// getHome is a user's home for get.sh, with a release that holds the real uma-cli and a uma-serve that only starts.
type getHome struct {
	t                  *testing.T
	root, home, script string // home is below root, as all is that a program may write
	signer             *releasetest.Signer
	files              map[string][]byte // of the release
	flood              string            // the file that has no length and no end
	flooded            atomic.Int64      // bytes of it
	server             *httptest.Server
	env                []string
}

func newGetHome(t *testing.T) *getHome {
	if runtime.GOOS != "linux" {
		t.Skip("the archives of this test are for Linux")
	}
	g := &getHome{t: t, root: t.TempDir(), signer: releasetest.NewSigner(1)}
	g.home = filepath.Join(g.root, "home")
	for _, dir := range []string{g.home, filepath.Join(g.root, "tmp")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if g.script, err = filepath.Abs("get.sh"); err != nil {
		t.Fatal(err)
	}
	g.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		for name == g.flood && g.flooded.Load() < 64<<20 {
			n, err := w.Write(make([]byte, 64<<10))
			if g.flooded.Add(int64(n)); err != nil {
				return
			}
		}
		if b, ok := g.files[name]; ok {
			w.Write(b)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(g.server.Close)
	g.env = []string{"HOME=" + g.home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + g.root + "/tmp",
		// Also for root, whose models are the system's otherwise.
		"XDG_DATA_HOME=" + g.home + "/.local/share", "XDG_CACHE_HOME=" + g.home + "/.cache",
		"XDG_CONFIG_HOME=" + g.home + "/.config", "XDG_STATE_HOME=" + g.home + "/.local/state",
		"XDG_RUNTIME_DIR=" + g.home + "/run"}
	return g
}

// scratch is an error where a program could write or delete outside of root: root's models were lost that way. Every
// folder of env and the prefix must be below root, and root below the folder of temporary files.
func scratch(root string, env, args []string) error {
	below := func(path, dir string) bool {
		return filepath.IsAbs(path) && strings.HasPrefix(filepath.Clean(path), strings.TrimSuffix(dir, "/")+"/")
	}
	if !below(root, os.TempDir()) {
		return fmt.Errorf("%s is no temporary folder", root)
	}
	for _, name := range []string{"HOME", "TMPDIR", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
		"XDG_STATE_HOME", "XDG_RUNTIME_DIR"} {
		values := 0
		for _, e := range env {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				if values++; !below(v, root) {
					return fmt.Errorf("%s is not below %s", e, root)
				}
			}
		}
		if values != 1 {
			return fmt.Errorf("%s is set %d times", name, values)
		}
	}
	prefixes := 0
	for i, a := range args {
		if a == "--system" || strings.HasPrefix(a, "--prefix=") {
			return fmt.Errorf("%s is not allowed", a)
		}
		if a == "--prefix" {
			if prefixes++; i+1 >= len(args) || !below(args[i+1], root) {
				return fmt.Errorf("%q: the prefix is not below %s", args, root)
			}
		}
	}
	if !below(args[0], root) && prefixes == 0 {
		return fmt.Errorf("%q has no --prefix", args)
	}
	return nil
}

// TestScratch: a run of get.sh or uma-cli that would reach this machine's folders is refused.
func TestScratch(t *testing.T) {
	g := newGetHome(t)
	prefix := g.home + "/.local"
	get := []string{"sh", "get.sh", "--prefix", prefix}
	if err := scratch(g.root, g.env, get); err != nil {
		t.Error(err)
	}
	if err := scratch(g.root, g.env, []string{prefix + "/bin/uma-cli", "uninstall"}); err != nil {
		t.Error(err)
	}
	for i := range g.env {
		if i == 1 { // PATH
			continue
		}
		name, _, _ := strings.Cut(g.env[i], "=")
		for _, value := range []string{"/root", "/", "", "relative", g.root + "/../x", g.root} {
			env := slices.Clone(g.env)
			env[i] = name + "=" + value
			if scratch(g.root, env, get) == nil {
				t.Errorf("%s is accepted", env[i])
			}
		}
		if scratch(g.root, slices.Delete(slices.Clone(g.env), i, i+1), get) == nil {
			t.Errorf("an environment without %s is accepted", name)
		}
		if scratch(g.root, append(slices.Clone(g.env), name+"=/root"), get) == nil {
			t.Errorf("a second %s is accepted", name)
		}
	}
	for _, args := range [][]string{{"sh", "get.sh"}, {"sh", "get.sh", "--system"}, append(get, "--system"),
		append(get, "--prefix", "/usr/local"), {"sh", "get.sh", "--prefix"}, {"sh", "get.sh", "--prefix=" + prefix},
		{"/usr/local/bin/uma-cli", "uninstall"}} {
		if scratch(g.root, g.env, args) == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	for _, root := range []string{"/", "", os.TempDir(), "/root"} {
		if scratch(root, g.env, get) == nil {
			t.Errorf("the root %q is accepted", root)
		}
	}
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
	return g.runWith(nil, name, args...)
}

func (g *getHome) runWith(stdin []byte, name string, args ...string) (string, error) {
	g.t.Helper()
	if err := scratch(g.root, g.env, append([]string{name}, args...)); err != nil {
		g.t.Fatalf("this test must not run: %v", err)
	}
	c := exec.Command(name, args...)
	c.Env, c.Dir, c.Stdin = g.env, g.home, bytes.NewReader(stdin)
	out, err := c.CombinedOutput()
	return string(out), err
}

// options are those of get.sh that name the prefix and the release.
func (g *getHome) options() []string {
	return []string{"--prefix", filepath.Join(g.home, ".local"), "--from", g.server.URL, "--key", g.signer.Public()}
}

// get runs get.sh as an administrator with a strict umask does.
func (g *getHome) get(args ...string) (string, error) {
	g.t.Helper()
	return g.run("sh", slices.Concat([]string{"-c", `umask 077; exec sh "$@"`, "sh", g.script}, g.options(), args)...)
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
	for _, dir := range []string{"lib/uma-serve", "lib/uma-serve/versions", "lib/uma-serve/current/bin", "bin"} {
		if info, err := os.Stat(filepath.Join(g.home, ".local", dir)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
	if out, err := g.run(cli, "upgrade"); err != nil || !strings.Contains(out, "is the newest") {
		t.Errorf("upgrade without a newer release: %v: %s", err, out)
	}
	g.release(t, "v1.1.0")
	if out, err := g.run(cli, "upgrade", "--check"); err != nil || !strings.Contains(out, "v1.1.0 is available") {
		t.Errorf("upgrade --check: %v: %s", err, out)
	}
	// While another program has the lock, only --check goes on.
	unlock, err := (&release.Place{Prefix: filepath.Join(g.home, ".local")}).Lock()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := g.run(cli, "upgrade", "--check"); err != nil {
		t.Errorf("upgrade --check during an upgrade: %v: %s", err, out)
	}
	for _, args := range [][]string{{"upgrade"}, {"uninstall"}} {
		if out, err := g.run(cli, args...); err == nil || !strings.Contains(out, "another installation or upgrade") {
			t.Errorf("%q during an upgrade: %v: %s", args, err, out)
		}
	}
	unlock()
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
	old := restricted(t, "openssl")
	if err := os.WriteFile(filepath.Join(old, "ssh-keygen"),
		[]byte("#!/bin/sh\necho 'unknown option -- Y' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for verifier, path := range map[string]string{"ssh-keygen": restricted(t, "ssh-keygen"),
		"openssl": restricted(t, "openssl"), "openssl, beside an old ssh-keygen": old} {
		g.files, g.env[1] = good, "PATH="+path
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
		// A syntax error, or nothing.
		_, _ = g.runWith(script[:len(script)*(part-1)/part], "sh", append([]string{"-s", "--"}, g.options()...)...)
		if left := g.left(t); len(left) > 0 {
			t.Errorf("a script cut off after %d of %d parts: left behind: %q", part-1, part, left)
		}
	}
}

// restricted returns a PATH with what get.sh needs, and one program more, such as one that verifies signatures.
func restricted(t *testing.T, needed string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sh", "cat", "cut", "sed", "grep", "head", "tail", "tr", "wc", "tar", "gzip",
		"mktemp", "rm", "rmdir", "mkdir", "uname", "id", "curl", "sha256sum", "base64", "dirname", needed} {
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

// TestGetBounds: a server that sends without end does not fill the disk.
func TestGetBounds(t *testing.T) {
	for _, tool := range []string{"curl", "wget"} {
		g := newGetHome(t)
		g.files, g.flood = map[string][]byte{"SHA256SUMS": []byte("x")}, "SHA256SUMS.sig"
		path := restricted(t, "wget")
		if err := os.Remove(filepath.Join(path, map[string]string{"curl": "wget", "wget": "curl"}[tool])); err != nil {
			t.Fatal(err)
		}
		g.env[1] = "PATH=" + path
		if out, err := g.get("--no-service"); err == nil || !strings.Contains(out, "more than 16384 bytes") {
			t.Errorf("%s: %v: %s", tool, err, out)
		}
		if n := g.flooded.Load(); n == 0 || n >= 64<<20 {
			t.Errorf("%s has taken %d bytes", tool, n)
		}
		if left := g.left(t); len(left) > 0 {
			t.Errorf("%s: left behind: %q", tool, left)
		}
	}
}

// TestGetBuilds: a build is for this machine's kind of processor, and of no checkout that just lies near.
func TestGetBuilds(t *testing.T) {
	g := newGetHome(t)
	fakes := filepath.Join(g.root, "fakes")
	put := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"cmake", "make", "c++", "python3", "git"} {
		put(filepath.Join(fakes, tool), "#!/bin/sh\nexit 1\n")
	}
	put(filepath.Join(fakes, "go"), "#!/bin/sh\n[ \"$*\" = 'env GOARCH' ] && echo riscv64\n")
	g.env[1] = "PATH=" + fakes + ":" + os.Getenv("PATH")
	script, err := os.ReadFile(g.script)
	if err != nil {
		t.Fatal(err)
	}
	checkout := filepath.Join(g.root, "checkout")
	put(filepath.Join(checkout, "scripts/get.sh"), string(script))
	for _, dir := range []string{g.root, checkout} {
		put(filepath.Join(dir, "engine.lock"), "")
		put(filepath.Join(dir, "scripts/package.sh"), "echo \"building for $ARCH\"\nexit 1\n")
	}
	options := append(g.options(), "--source", "--no-service")
	if out, err := g.run("sh", append([]string{checkout + "/scripts/get.sh"}, options...)...); err == nil ||
		!strings.Contains(out, "building for riscv64") {
		t.Errorf("in a checkout: %v: %s", err, out)
	}
	// Piped into sh: the folder above the current one is another's.
	if out, err := g.runWith(script, "sh", append([]string{"-s", "--"}, options...)...); err == nil ||
		!strings.Contains(out, "cannot clone") || strings.Contains(out, "building for") {
		t.Errorf("piped: %v: %s", err, out)
	}
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
