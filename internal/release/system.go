package release

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Run runs a program of the system, whose output is discarded; the error has its last words.
func Run(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(string(out))
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	if text != "" {
		return fmt.Errorf("%w: %.300s", err, text)
	}
	return err
}

// Query runs a program of the system and returns what it prints; ok is false when it fails or does not exist.
func Query(name string, args ...string) (out string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	b, err := exec.CommandContext(ctx, name, args...).Output()
	return string(b), err == nil
}

// Owner says which package manager owns a program and how to upgrade it there; "" = none that is known.
func Owner(program string, query func(name string, args ...string) (string, bool)) string {
	switch {
	case strings.HasPrefix(program, "/nix/store/"):
		return "Nix: nix profile upgrade uma-serve, or update the flake that has it"
	case strings.Contains(program, "/Cellar/"):
		return "Homebrew: brew upgrade --fetch-HEAD uma-serve"
	}
	for _, m := range []struct{ name, flag, text string }{
		{"dpkg-query", "-S", "a Debian package: apt install ./uma-serve_VERSION_ARCH.deb"},
		{"rpm", "-qf", "an RPM package: dnf install ./uma-serve_VERSION_ARCH.rpm"},
		{"apk", "info --who-owns", "an Alpine package: apk add --allow-untrusted ./uma-serve_VERSION_ARCH.apk"},
	} {
		if _, ok := query(m.name, append(strings.Fields(m.flag), program)...); ok {
			return m.text
		}
	}
	return ""
}

// System reports whether the installation is one for all users: its prefix is not in the user's home, whichever way
// symbolic links lead there.
func (p *Place) System() bool {
	home := resolved(p.Home)
	return p.Home == "" || home == "/" || !strings.HasPrefix(resolved(p.Prefix)+"/", home+"/")
}

// resolved follows the symbolic links of a path, of which the end may not exist yet.
func resolved(path string) string {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(resolved(dir), filepath.Base(path))
	}
	return path
}

// Units returns the service files of an installation: units of systemd for its user, or those of the system, or a
// launchd agent.
func Units(goos, prefix, home, dataHome string) []Unit {
	system := (&Place{Prefix: prefix, Home: home}).System()
	switch {
	case goos == "darwin":
		return []Unit{{"contrib/launchd/uma-serve.plist", filepath.Join(home, "Library/LaunchAgents/uma-serve.plist")}}
	case goos != "linux":
		return nil
	case !system:
		if !filepath.IsAbs(dataHome) {
			dataHome = filepath.Join(home, ".local/share")
		}
		return unitFiles("contrib/systemd/user", filepath.Join(dataHome, "systemd/user"))
	}
	units := append(unitFiles("contrib/systemd/user", filepath.Join(prefix, "share/systemd/user")),
		unitFiles("contrib/systemd/system", filepath.Join(prefix, "lib/systemd/system"))...)
	return append(units, Unit{"contrib/sysusers/uma-serve.conf",
		filepath.Join(prefix, "lib/sysusers.d/uma-serve.conf")})
}

func unitFiles(from, to string) (units []Unit) {
	for _, name := range []string{"uma-serve.service", "uma-serve.socket"} {
		units = append(units, Unit{from + "/" + name, filepath.Join(to, name)})
	}
	return units
}

// StartCommands make the system know the service and start it.
func StartCommands(goos string, system bool, home string) [][]string {
	switch {
	case goos == "darwin":
		return [][]string{{"launchctl", "bootstrap", fmt.Sprintf("gui/%d", os.Getuid()),
			filepath.Join(home, "Library/LaunchAgents/uma-serve.plist")}}
	case system:
		return [][]string{{"systemd-sysusers"}, {"systemctl", "daemon-reload"},
			{"systemctl", "enable", "--now", "uma-serve.socket"}}
	}
	return [][]string{{"systemctl", "--user", "daemon-reload"},
		{"systemctl", "--user", "enable", "--now", "uma-serve.socket"}}
}

// RestartCommands restart the service if it runs.
func RestartCommands(goos string, system bool) [][]string {
	switch {
	case goos == "darwin":
		return [][]string{{"launchctl", "kickstart", "-k", fmt.Sprintf("gui/%d/uma-serve", os.Getuid())}}
	case system:
		return [][]string{{"systemctl", "daemon-reload"}, {"systemctl", "try-restart", "uma-serve.service"}}
	}
	return [][]string{{"systemctl", "--user", "daemon-reload"},
		{"systemctl", "--user", "try-restart", "uma-serve.service"}}
}

// StopCommands stop the service and keep it from starting.
func StopCommands(goos string, system bool) [][]string {
	switch {
	case goos == "darwin":
		return [][]string{{"launchctl", "bootout", fmt.Sprintf("gui/%d/uma-serve", os.Getuid())}}
	case system:
		return [][]string{{"systemctl", "disable", "--now", "uma-serve.socket", "uma-serve.service"}}
	}
	return [][]string{{"systemctl", "--user", "disable", "--now", "uma-serve.socket", "uma-serve.service"}}
}

// Unpacked downloads an archive and returns the folder with its content, below root/versions: from there it can be
// renamed. The caller removes it.
func (s *Source) Unpacked(ctx context.Context, a Archive, root string) (tree string, err error) {
	versions := filepath.Join(root, "versions")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(versions, ".new-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	path, err := s.Fetch(ctx, a, dir)
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := os.Remove(path); err != nil {
		return "", err
	}
	if err := unpack(f, dir); err != nil {
		return "", fmt.Errorf("%s: %w; nothing was installed", a.Name, err)
	}
	return dir, nil
}
