package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/cpu"

	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/internal/release"
)

// upgradeFlags are the flags of uma-cli upgrade.
type upgradeFlags struct {
	check, rollback, downgrade bool
	url, key                   string
}

func newUpgrade() *cobra.Command {
	var f upgradeFlags
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace this installation by the newest release; --rollback takes it back",
		Long: `Replace this installation by the newest release.

The archive is taken from where scripts/get.sh took the installed one. Its signature and its SHA-256 are verified before
anything is unpacked. The new version is unpacked beside the old one, started once to see that it fits this machine, and
then comes into use with the renaming of one link: an interrupted upgrade leaves the old version. The old version stays
for --rollback. A service that runs is restarted.

A copy that came from a package manager (dpkg, rpm, apk, Homebrew, Nix) or from make install is not touched; the error
names the command that upgrades it.`,
		Example: `  uma-cli upgrade --check       # is there a newer release?
  uma-cli upgrade
  uma-cli upgrade --rollback    # back to the version before`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return upgrade(cmd.Context(), &f) },
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.check, "check", false, "only say whether there is a newer release: exit status 0 = yes, 1 = no")
	fl.BoolVar(&f.rollback, "rollback", false, "use the version before the last upgrade again")
	fl.BoolVar(&f.downgrade, "allow-downgrade", false, "also install an older release")
	fl.StringVar(&f.url, "from", "", "`URL` of another release's folder (default: that of the installation)")
	fl.StringVar(&f.key, "key", "", "public `KEY` that signs that release, ssh-ed25519 BASE64 (default: that of the "+
		"installation)")
	fl.SortFlags = false
	return cmd
}

// installation returns the installation that this program belongs to. verb is what shall be done with it, for errors.
func installation(verb string) (*release.Place, *release.Receipt, error) {
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("find this program: %w", err)
	}
	prefix, ok := release.Of(program)
	if !ok {
		return nil, nil, notOurs(program, verb, release.Owner(program, release.Query))
	}
	p := &release.Place{Prefix: prefix, Home: os.Getenv("HOME"), Run: release.Run}
	r, err := p.Receipt()
	if err != nil {
		return nil, nil, err
	}
	return p, r, nil
}

// notOurs is the error for a copy that another program has installed.
func notOurs(program, verb, owner string) error {
	if verb != "upgrade" {
		kind, _, _ := strings.Cut(owner, ":")
		return fmt.Errorf("%s was not put there by scripts/get.sh; %s it with what put it there: %s", program, verb,
			cmp.Or(kind, "make, or another program"))
	}
	if owner != "" {
		return fmt.Errorf("%s belongs to %s", program, owner)
	}
	return fmt.Errorf("%s was not installed by scripts/get.sh; upgrade it as it was installed (git pull && make "+
		"install), or install a release with scripts/get.sh", program)
}

func upgrade(ctx context.Context, f *upgradeFlags) error {
	if f.rollback && (f.check || f.url != "" || f.key != "" || f.downgrade) {
		return usagef("--rollback excludes --check, --from, --key and --allow-downgrade")
	}
	p, r, err := installation("upgrade")
	if err != nil {
		return err
	}
	if !f.check { // which needs no right to write
		unlock, err := p.Lock()
		if err != nil {
			return err
		}
		defer unlock()
		if r, err = p.Receipt(); err != nil { // another upgrade may have ended meanwhile
			return err
		}
	}
	if f.rollback {
		name, err := p.Rollback()
		if err != nil {
			return err
		}
		fmt.Printf("%s is in use again; uma-cli upgrade --rollback takes this back\n", name)
		return restart(ctx, p, r)
	}
	url, line := cmp.Or(f.url, r.URL, buildinfo.ReleaseURL), cmp.Or(f.key, r.Key, buildinfo.ReleaseKey)
	if url == "" || line == "" {
		return errors.New("this copy was built from source and knows no release: name one with --from URL --key KEY, " +
			"or run scripts/get.sh --source again in a newer checkout")
	}
	source, err := sourceOf(url, line)
	if err != nil {
		return err
	}
	archives, err := source.Archives(ctx)
	if err != nil {
		return err
	}
	a, err := release.Choose(archives, systems())
	if err != nil {
		return err
	}
	older, known := release.Older(a.Version, r.Version)
	switch {
	case a.Version == r.Version:
		fmt.Printf("uma-serve %s is the newest release\n", r.Version)
		if f.check {
			return exitStatus(exitError)
		}
		return nil
	case (older || !known) && !f.downgrade:
		why := "is older than"
		if !known {
			why = "cannot be compared with"
		}
		if f.check {
			fmt.Printf("the release %s %s the installed %s\n", a.Version, why, r.Version)
			return exitStatus(exitError)
		}
		return fmt.Errorf("the release %s %s the installed %s; --allow-downgrade installs it all the same", a.Version,
			why, r.Version)
	case f.check:
		fmt.Printf("uma-serve %s is available; %s is installed\n", a.Version, r.Version)
		return nil
	}
	fmt.Printf("downloading %s\n", a.Name)
	tree, err := source.Unpacked(ctx, a, p.Root())
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	p.Units = unitsFor(p.Prefix, r.Service)
	next := release.Receipt{Version: a.Version, URL: url, Key: line}
	if err := p.Install(ctx, tree, release.FolderName(a), next); err != nil {
		return err
	}
	fmt.Printf("uma-serve %s is installed; uma-cli upgrade --rollback goes back to %s\n", a.Version, r.Version)
	return restart(ctx, p, r)
}

func sourceOf(url, line string) (*release.Source, error) {
	if err := release.CheckURL(url); err != nil {
		return nil, usageError{err}
	}
	key, err := release.ParseKey(line)
	if err != nil {
		return nil, usageError{err}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = time.Minute
	return &release.Source{URL: url, Key: key, Client: &http.Client{Transport: transport}}, nil
}

func systems() []string {
	return release.Systems(runtime.GOOS, runtime.GOARCH, cpu.X86.HasAVX2 && cpu.X86.HasFMA)
}

// unitsFor returns the service files of an installation; none without a service.
func unitsFor(prefix string, service bool) []release.Unit {
	if !service {
		return nil
	}
	return release.Units(runtime.GOOS, prefix, os.Getenv("HOME"), os.Getenv("XDG_DATA_HOME"))
}

// restart makes a running service use the version that is in use now.
func restart(ctx context.Context, p *release.Place, r *release.Receipt) error {
	if !r.Service {
		fmt.Println("a daemon that runs stays the old one until you start it again")
		return nil
	}
	for _, c := range release.RestartCommands(runtime.GOOS, p.System()) {
		if err := p.Run(ctx, c[0], c[1:]...); err != nil {
			fmt.Fprintf(os.Stderr, "uma-cli: %s failed (%v): restart the service yourself\n", strings.Join(c, " "), err)
			return nil
		}
	}
	return nil
}
