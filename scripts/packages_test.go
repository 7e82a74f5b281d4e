package scripts

import (
	"bytes"
	"encoding/xml"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestPackageDescription: what nfpm.yaml names exists, and the scripts that dpkg runs are scripts.
func TestPackageDescription(t *testing.T) {
	var pkg struct {
		Name      string
		Contents  []struct{ Src, Dst, Type string }
		Overrides map[string]struct{ Scripts map[string]string }
	}
	if err := yaml.Unmarshal([]byte(read(t, "../packaging/nfpm.yaml")), &pkg); err != nil {
		t.Fatal(err)
	}
	if pkg.Name != "uma-serve" || len(pkg.Overrides["deb"].Scripts) != 4 ||
		len(pkg.Overrides["rpm"].Scripts) != 3 || len(pkg.Overrides["apk"].Scripts) != 4 || len(pkg.Contents) != 2 {
		t.Errorf("%+v", pkg)
	}
	for _, c := range pkg.Contents {
		if strings.HasPrefix(c.Src, "$") {
			continue
		}
		if _, err := os.Stat("../" + c.Src); err != nil || c.Type != "config|noreplace" {
			t.Errorf("%+v: %v", c, err)
		}
	}
	scripts := maps.Clone(pkg.Overrides["deb"].Scripts)
	for _, kind := range []string{"rpm", "apk"} {
		for name, path := range pkg.Overrides[kind].Scripts {
			scripts[kind+" "+name] = path
		}
	}
	for name, path := range scripts {
		st, err := os.Stat("../" + path)
		if err != nil || st.Mode()&0o111 == 0 {
			t.Errorf("%s: %v %v", name, st, err)
			continue
		}
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", "../"+path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", path, err, out)
		}
		if strings.Contains(name, " ") { // one of another package manager
			continue
		}
		// dpkg calls the scripts for steps that they have no part in, too.
		if out, err := exec.CommandContext(t.Context(), "../"+path, "abort-upgrade").CombinedOutput(); err != nil ||
			len(out) > 0 {
			t.Errorf("%s abort-upgrade: %v %s", path, err, out)
		}
	}
}

// TestPackageRefuses: an unknown processor or kind of package is refused before anything is built.
func TestPackageRefuses(t *testing.T) {
	for _, c := range []struct{ arch, kind, want string }{
		{"sparc", "deb", "ARCH is sparc; it must be amd64, amd64-v2 or arm64"},
		{"amd64", "zip", "zip: deb, rpm, apk or tarball"},
		{"amd64-v2", "deb", "only a tarball"},
	} {
		cmd := exec.CommandContext(t.Context(), "./package.sh", c.kind)
		cmd.Env = append(os.Environ(), "ARCH="+c.arch, "VERSION=v1.2.3")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "building") {
			t.Errorf("%+v: %v %s", c, err, out)
		}
	}
}

// TestContrib: the files for other systems are well-formed and name files and options that exist.
func TestContrib(t *testing.T) {
	var plist struct {
		Dict struct {
			Keys    []string `xml:"key"`
			Strings []string `xml:"string"`
			Program []string `xml:"array>string"`
		} `xml:"dict"`
	}
	if err := xml.NewDecoder(bytes.NewReader([]byte(read(t, "../contrib/launchd/uma-serve.plist")))).
		Decode(&plist); err != nil {
		t.Fatal(err)
	}
	if len(plist.Dict.Program) != 1 || filepath.Base(plist.Dict.Program[0]) != "uma-serve" ||
		len(plist.Dict.Keys) != 7 || plist.Dict.Strings[0] != "uma-serve" {
		t.Errorf("%+v", plist)
	}
	for _, file := range []string{"../contrib/Containerfile", "../contrib/homebrew/uma-serve.rb"} {
		for _, path := range regexp.MustCompile(`scripts/[a-z-]+\.sh`).FindAllString(read(t, file), -1) {
			if _, err := os.Stat("../" + path); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	serve := filepath.Join(bin(t), "uma-serve")
	for _, env := range regexp.MustCompile(`UMA_[A-Z_]+`).FindAllString(read(t, "../contrib/Containerfile"), -1) {
		cmd := exec.CommandContext(t.Context(), serve, "--print-config")
		cmd.Env = []string{"HOME=" + t.TempDir(), env + "=/there"}
		if out, err := cmd.CombinedOutput(); err != nil ||
			!bytes.Contains(out, []byte("'/there'  # environment "+env)) ||
			bytes.Contains(out, []byte("warning")) {
			t.Errorf("%s is no option: %v\n%.300s", env, err, out)
		}
	}
	module := regexp.MustCompile(`(?m)^module (\S+)`).FindStringSubmatch(read(t, "../go.mod"))[1]
	formula := read(t, "../contrib/homebrew/uma-serve.rb")
	for _, want := range []string{`head "https://` + module + `.git"`, `homepage "https://` + module + `"`} {
		if !strings.Contains(formula, want) {
			t.Errorf("the formula lacks %s", want)
		}
	}
	for program, args := range map[string][]string{"ruby": {"-c", "../contrib/homebrew/uma-serve.rb"},
		"nix-instantiate": {"--parse", "../flake.nix"}} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("%s is not checked: %s is missing", args[1], program)
			continue
		}
		if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
			t.Errorf("%v %s", err, out)
		}
	}
}

// TestGoVersions: what builds uma-serve elsewhere has the Go of go.mod, and takes llama.cpp from engine.lock.
func TestGoVersions(t *testing.T) {
	version := regexp.MustCompile(`(?m)^go (1\.\d+)`).FindStringSubmatch(read(t, "..", "go.mod"))
	if version == nil {
		t.Fatal("go.mod names no version")
	}
	for file, want := range map[string]string{"contrib/Containerfile": "golang:" + version[1] + "-",
		"flake.nix": "go_" + strings.ReplaceAll(version[1], ".", "_"), "README.md": "Go " + version[1],
		"CONTRIBUTING.md": "Go " + version[1]} {
		if !strings.Contains(read(t, "..", file), want) {
			t.Errorf("%s does not have %s, the version of go.mod", file, want)
		}
	}
	lock := regexp.MustCompile(`(?m)^sha256=(\w+)`).FindStringSubmatch(read(t, "..", "engine.lock"))
	for _, file := range []string{"flake.nix", "contrib/Containerfile", "contrib/homebrew/uma-serve.rb"} {
		if strings.Contains(read(t, "..", file), lock[1]) {
			t.Errorf("%s repeats the sum of engine.lock", file)
		}
	}
}
