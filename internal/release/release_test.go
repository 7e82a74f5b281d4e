package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/release/releasetest"
)

func TestKeyAndSignature(t *testing.T) {
	s, other := releasetest.NewSigner(1), releasetest.NewSigner(2)
	key, err := ParseKey(s.Public() + " a comment")
	if err != nil || key.String() != s.Public() {
		t.Fatalf("ParseKey: %v, %v", key, err)
	}
	message := []byte("abc  uma-serve\n")
	good := s.Sign(message, namespace)
	if err := key.Verify(message, good); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"empty": nil, "no armor": []byte("abc"), "another key": other.Sign(message, namespace),
		"another namespace": s.Sign(message, "git"), "another message": s.Sign([]byte("abd"), namespace),
		"cut": good[:len(good)/2], "no base64": bytes.Replace(good, []byte("U1NI"), []byte("####"), 1),
	} {
		if err := key.Verify(message, bad); !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, line := range []string{"", "ssh-rsa AAAA", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-ed25519 ####",
		s.Public()[:len(s.Public())-8], s.Public() + "AAAA"} {
		if _, err := ParseKey(line); err == nil {
			t.Errorf("ParseKey(%q) is accepted", line)
		}
	}
}

// TestSSHKeygen verifies a signature of the program that signs releases.
func TestSSHKeygen(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed")
	}
	dir := t.TempDir()
	file, private := filepath.Join(dir, "SHA256SUMS"), filepath.Join(dir, "key")
	if err := os.WriteFile(file, []byte("sums\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-q", "-t", "ed25519", "-N", "", "-f", private},
		{"-q", "-Y", "sign", "-f", private, "-n", namespace, file}} {
		if out, err := exec.Command("ssh-keygen", args...).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen %v: %v: %s", args, err, out)
		}
	}
	public, err := os.ReadFile(private + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	sig, err := os.ReadFile(file + ".sig")
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParseKey(string(public))
	if err != nil {
		t.Fatal(err)
	}
	if err := key.Verify([]byte("sums\n"), sig); err != nil {
		t.Error(err)
	}
}

func FuzzVerify(f *testing.F) {
	s := releasetest.NewSigner(1)
	key, err := ParseKey(s.Public())
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("x"), s.Sign([]byte("x"), namespace))
	f.Add([]byte("x"), []byte("-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----"))
	f.Fuzz(func(t *testing.T, message, sig []byte) {
		if key.Verify(message, sig) == nil && !bytes.Equal(message, []byte("x")) {
			t.Errorf("a signature fits %q", message)
		}
	})
}

func FuzzParseSums(f *testing.F) {
	f.Add(strings.Repeat("0", 64) + "  uma-serve-v1.0.0-linux-amd64.tar.gz\n")
	f.Add("abc\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseSums(text)
		for _, a := range list {
			if err != nil || len(a.SHA256) != 64 || strings.ContainsAny(a.Name, "/\\ ") {
				t.Errorf("%q: %+v", text, a)
			}
		}
	})
}

func TestChoose(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	list, err := ParseSums(sum + "  uma-serve-v1.2.3-4-gabc-linux-amd64.tar.gz\n" + sum + "  get.sh\n" + sum +
		"  uma-serve-v1.2.3-4-gabc-linux-amd64-v2.tar.gz\n" + sum + "  ../uma-serve-v9-linux-arm64.tar.gz\n")
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, c := range []struct {
		arch string
		avx2 bool
		want string
	}{{"amd64", true, "linux-amd64"}, {"amd64", false, "linux-amd64-v2"}, {"arm64", false, ""}} {
		a, err := Choose(list, Systems("linux", c.arch, c.avx2))
		if a.System != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s, AVX2 %v: %q, %v", c.arch, c.avx2, a.System, err)
		}
		if c.want != "" && a.Version != "v1.2.3-4-gabc" {
			t.Errorf("version %q", a.Version)
		}
	}
	for _, text := range []string{"abc  x\n", sum + " x\n", strings.Repeat(sum+"  x\n", maxSums+1)} {
		if _, err := ParseSums(text); err == nil {
			t.Errorf("ParseSums(%.40q) is accepted", text)
		}
	}
}

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		a, b         string
		older, known bool
	}{
		{"v1.2.3", "v1.2.4", true, true}, {"v1.10.0", "v1.9.9", false, true}, {"v1.0.0", "v1.0.0", false, true},
		{"v1.0.0", "v1.0.0-5-gabc123", true, true}, {"v2.0.0-rc.1", "v2.0.0", true, true},
		{"v2.0.0-rc.1", "v2.0.0-rc.2", true, true}, {"c7628a8", "v1.0.0", false, false}, {"dev", "dev", false, false},
	} {
		if older, known := Older(c.a, c.b); older != c.older || known != c.known {
			t.Errorf("Older(%q, %q) = %v, %v", c.a, c.b, older, known)
		}
	}
}

func TestUnpackRefuses(t *testing.T) {
	entry := func(h tar.Header) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		w.Close()
		z.Close()
		return b.Bytes()
	}
	whole := releasetest.Archive(t, map[string]string{"top/bin/uma-cli": strings.Repeat("x", 5000)})
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"above":       {entry(tar.Header{Name: "top/../../x", Typeflag: tar.TypeReg}), "leads out"},
		"absolute":    {entry(tar.Header{Name: "/etc/passwd", Typeflag: tar.TypeReg}), "leads out"},
		"link":        {entry(tar.Header{Name: "top/x", Typeflag: tar.TypeSymlink, Linkname: "/etc"}), "neither"},
		"hard link":   {entry(tar.Header{Name: "top/x", Typeflag: tar.TypeLink, Linkname: "top/y"}), "neither"},
		"device":      {entry(tar.Header{Name: "top/x", Typeflag: tar.TypeChar}), "neither"},
		"beside":      {entry(tar.Header{Name: "x", Typeflag: tar.TypeReg}), "beside"},
		"not gzip":    {[]byte("hello"), "no gzip"},
		"cut":         {whole[:len(whole)-10], "damaged"},
		"cut in half": {whole[:len(whole)/2], "unexpected EOF"},
	} {
		dir := t.TempDir()
		if err := unpack(bytes.NewReader(c.archive), dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// site serves the files of a release.
func site(t *testing.T, files map[string][]byte) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, ok := files[strings.TrimPrefix(r.URL.Path, "/")]; ok {
			w.Write(b)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func archiveOf(t *testing.T, version string) (name string, content []byte) {
	top := "uma-serve-" + version + "-linux-amd64/"
	return "uma-serve-" + version + "-linux-amd64.tar.gz", releasetest.Archive(t, map[string]string{
		top + "bin/uma-serve": version, top + "bin/uma-cli": version, top + "share/man/man1/uma-cli.1": "man",
		top + "share/doc/uma-serve/http.md":            "doc",
		top + "contrib/systemd/user/uma-serve.service": "ExecStart=@BINDIR@/uma-serve",
		top + "contrib/systemd/user/uma-serve.socket":  "[Socket]"})
}

// listing returns the paths below dir that are no folders.
func listing(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && path != dir {
			rel, _ := filepath.Rel(dir, path)
			paths = append(paths, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// install takes a version from a release to a place.
func install(t *testing.T, p *Place, s *releasetest.Signer, version string) error {
	t.Helper()
	name, content := archiveOf(t, version)
	server := site(t, releasetest.Release(s, map[string][]byte{name: content}))
	key, err := ParseKey(releasetest.NewSigner(1).Public())
	if err != nil {
		t.Fatal(err)
	}
	source := &Source{URL: server.URL, Key: key, Client: server.Client()}
	archives, err := source.Archives(t.Context())
	if err != nil {
		return err
	}
	a, err := Choose(archives, []string{"linux-amd64"})
	if err != nil {
		return err
	}
	tree, err := source.Unpacked(t.Context(), a, p.Root())
	if err != nil {
		return err
	}
	return p.Install(t.Context(), tree, FolderName(a), Receipt{Version: version, URL: server.URL, Key: key.String()})
}

func TestInstallUpgradeRollbackRemove(t *testing.T) {
	home := t.TempDir()
	p := &Place{Prefix: filepath.Join(home, ".local"), Home: home,
		Run: func(context.Context, string, ...string) error { return nil }}
	p.Units = Units("linux", p.Prefix, home, "")
	signer := releasetest.NewSigner(1)
	runs := func(want string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(p.Prefix, "bin", "uma-serve"))
		if err != nil || string(b) != want {
			t.Errorf("in use: %q, %v; want %s", b, err, want)
		}
	}
	for _, version := range []string{"v1.0.0", "v1.1.0", "v1.2.0"} {
		if err := install(t, p, signer, version); err != nil {
			t.Fatal(err)
		}
		runs(version)
	}
	if n, err := os.ReadDir(filepath.Join(p.Root(), "versions")); err != nil || len(n) != 2 {
		t.Errorf("%d versions are kept, %v", len(n), err)
	}
	unit, err := os.ReadFile(filepath.Join(home, ".local/share/systemd/user/uma-serve.service"))
	if err != nil || string(unit) != "ExecStart="+p.Prefix+"/bin/uma-serve" {
		t.Errorf("unit: %q, %v", unit, err)
	}
	if name, err := p.Rollback(); err != nil || !strings.HasPrefix(name, "v1.1.0_") {
		t.Errorf("Rollback: %q, %v", name, err)
	}
	runs("v1.1.0")
	if r, err := p.Receipt(); err != nil || r.Version != "v1.1.0" || !r.Service {
		t.Errorf("receipt: %+v, %v", r, err)
	}
	// Another key, and a daemon that does not start: all stays as it is.
	before := listing(t, home)
	if err := install(t, p, releasetest.NewSigner(2), "v1.3.0"); !errors.Is(err, ErrSignature) {
		t.Errorf("another key: %v", err)
	}
	if after := listing(t, home); !slices.Equal(before, after) {
		t.Errorf("a refused release has changed %v to %v", before, after)
	}
	p.Run = func(context.Context, string, ...string) error { return errors.New("illegal instruction") }
	if err := install(t, p, signer, "v1.4.0"); err == nil || !strings.Contains(err.Error(), "--source") {
		t.Errorf("a daemon that does not start: %v", err)
	}
	runs("v1.1.0")
	if err := p.Remove(); err != nil {
		t.Fatal(err)
	}
	if left := listing(t, home); len(left) > 1 || len(left) == 1 && left[0] != ".local" {
		t.Errorf("left behind: %v", left)
	}
	if _, err := p.Receipt(); !errors.Is(err, ErrNoReceipt) {
		t.Errorf("receipt after Remove: %v", err)
	}
}

func TestInstallRespectsForeignFiles(t *testing.T) {
	home := t.TempDir()
	p := &Place{Prefix: filepath.Join(home, ".local"), Home: home,
		Run: func(context.Context, string, ...string) error { return nil }}
	own := filepath.Join(p.Prefix, "bin", "uma-cli")
	if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, []byte("mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := install(t, p, releasetest.NewSigner(1), "v1.0.0"); err == nil || !strings.Contains(err.Error(), own) {
		t.Errorf("install over a foreign file: %v", err)
	}
	if b, err := os.ReadFile(own); err != nil || string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
}

func TestFetchRefuses(t *testing.T) {
	signer := releasetest.NewSigner(1)
	name, content := archiveOf(t, "v1.0.0")
	files := releasetest.Release(signer, map[string][]byte{name: content})
	files[name] = append(slices.Clone(content), 'x')
	server := site(t, files)
	key, err := ParseKey(signer.Public())
	if err != nil {
		t.Fatal(err)
	}
	source := &Source{URL: server.URL, Key: key, Client: server.Client()}
	archives, err := source.Archives(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if _, err := source.Unpacked(t.Context(), archives[0], root); err == nil ||
		!strings.Contains(err.Error(), "exchanged") {
		t.Errorf("a tampered archive: %v", err)
	}
	if left := listing(t, root); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	short := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.Write([]byte("cut"))
	}))
	defer short.Close()
	source = &Source{URL: short.URL, Key: key, Client: short.Client()}
	if _, err := source.Archives(t.Context()); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("a transfer that is cut off: %v", err)
	}
	done := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	defer silent.Close()
	defer close(done)
	source = &Source{URL: silent.URL, Key: key, Client: silent.Client(), Stall: 10 * time.Millisecond}
	if _, err := source.Archives(t.Context()); err == nil || !strings.Contains(err.Error(), "no byte came") {
		t.Errorf("a silent server: %v", err)
	}
	for _, bad := range []string{"", "ftp://x/y", "https://", "https://x/?a=b", "https://u:p@x/", "x"} {
		if CheckURL(bad) == nil {
			t.Errorf("CheckURL(%q) is accepted", bad)
		}
	}
}

func TestOwner(t *testing.T) {
	dpkg := func(name string, _ ...string) (string, bool) { return "", name == "dpkg-query" }
	none := func(string, ...string) (string, bool) { return "", false }
	for _, c := range []struct {
		program string
		query   func(string, ...string) (string, bool)
		want    string
	}{
		{"/nix/store/abc/bin/uma-cli", none, "Nix"}, {"/opt/homebrew/Cellar/uma-serve/1/bin/uma-cli", none, "Homebrew"},
		{"/usr/bin/uma-cli", dpkg, "Debian"}, {"/usr/local/bin/uma-cli", none, ""},
	} {
		if got := Owner(c.program, c.query); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("Owner(%s) = %q", c.program, got)
		}
	}
	if prefix, ok := Of("/home/u/.local/lib/uma-serve/versions/v1_abc/bin/uma-cli"); !ok || prefix != "/home/u/.local" {
		t.Errorf("Of: %q, %v", prefix, ok)
	}
	if _, ok := Of("/usr/bin/uma-cli"); ok {
		t.Error("Of takes /usr/bin for ours")
	}
}
