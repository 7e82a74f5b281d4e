package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/internal/release"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/models/store"
)

func newUninstall() *cobra.Command {
	var purge, yes bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove what scripts/get.sh has installed; --purge also models, caches and settings",
		Long: `Remove what scripts/get.sh has installed: programs, manual pages, completions, service files. The
service is stopped first.

Models, caches and settings stay, and are named. --purge removes them, too: those of this user, and those of the machine
(/var/lib/uma-serve, /var/cache/uma-serve, /etc/uma-serve) only when the installation in /usr/local is removed and no
package uses them. Models of other programs (ollama, LM Studio, the cache of Hugging Face) are never removed.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, r, err := installation("remove")
			if err != nil {
				return err
			}
			machine := ownsMachine(p.Prefix, os.Lstat)
			if purge && !yes {
				mine, _ := userFolders(os.Getenv, p, machine)
				return usagef("--purge deletes these folders: %s; add --yes to do it", strings.Join(mine, ", "))
			}
			unlock, err := p.Lock() // an upgrade would bring its half back
			if err != nil {
				return err
			}
			defer unlock()
			if r.Service {
				for _, c := range release.StopCommands(runtime.GOOS, p.System()) {
					_ = p.Run(cmd.Context(), c[0], c[1:]...) // it may not run
				}
			}
			if err := p.Remove(); err != nil {
				return err
			}
			if socket, err := wireclient.DefaultSocket(); err == nil {
				release.RemoveSocket(socket)
			}
			fmt.Println("uma-serve is removed from " + p.Prefix)
			mine, others := userFolders(os.Getenv, p, machine)
			return errors.Join(leave(mine, purge), leave(others, false))
		},
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "also delete uma-serve's models, caches and settings of this user")
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm --purge")
	cmd.Flags().SortFlags = false
	return cmd
}

// leave deletes the folders of a user, or names those that stay.
func leave(folders []string, purge bool) error {
	var errs []error
	for _, dir := range folders {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !purge {
			fmt.Println("kept: " + dir)
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		if around := filepath.Dir(dir); filepath.Base(around) == "uma-serve" {
			_ = os.Remove(around) // if it is empty
		}
		fmt.Println("deleted: " + dir)
	}
	return errors.Join(errs...)
}

// machinePrefix is the prefix of an installation that has the machine's folders: systemd finds its units there.
const machinePrefix = "/usr/local"

// ownsMachine reports whether the folders below /var and /etc are those of the installation in prefix alone. One in any
// other prefix, such as a test's, leaves them, and so does one beside a package.
func ownsMachine(prefix string, lstat func(string) (fs.FileInfo, error)) bool {
	_, err := lstat("/usr/bin/uma-serve")
	return prefix == machinePrefix && errors.Is(err, fs.ErrNotExist)
}

// userFolders lists the folders that daemon and client write. Those of the user are below its home or where XDG
// variables put them. Others belong to more than this installation, such as root's models in /var/lib; with machine
// they are its own.
func userFolders(getenv func(string) string, p *release.Place, machine bool) (mine, others []string) {
	var within, folders []string
	if filepath.IsAbs(p.Home) {
		within = append(within, filepath.Clean(p.Home))
	}
	under := func(variable string, below ...string) {
		if d := getenv(variable); filepath.IsAbs(d) {
			within = append(within, filepath.Clean(d))
			folders = append(folders, filepath.Join(d, "uma-serve"))
			return
		}
		for _, b := range below {
			if filepath.IsAbs(p.Home) {
				folders = append(folders, filepath.Join(p.Home, b, "uma-serve"))
			}
		}
	}
	under("XDG_CACHE_HOME", ".cache", "Library/Caches") // the second on macOS
	under("XDG_CONFIG_HOME", ".config")
	under("XDG_STATE_HOME", ".local/state")
	if d := getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		within = append(within, filepath.Clean(d))
	}
	folders = append(folders, store.DefaultDir(getenv))
	if machine {
		within = append(within, "/var", "/etc")
	}
	if p.System() {
		folders = append(folders, "/var/lib/uma-serve", "/var/cache/uma-serve", "/etc/uma-serve")
	}
	slices.Sort(folders)
	for _, dir := range slices.Compact(folders) {
		inside := func(root string) bool { return root != "/" && strings.HasPrefix(dir, root+"/") }
		if slices.ContainsFunc(within, inside) {
			mine = append(mine, dir)
		} else {
			others = append(others, dir)
		}
	}
	return mine, others
}

// newPlaceCommand returns the command that scripts/get.sh calls when it has verified and unpacked an archive.
func newPlaceCommand() *cobra.Command {
	var tree, prefix, name string
	var service bool
	var r release.Receipt
	cmd := &cobra.Command{
		Use: "__install", Hidden: true, Args: noArgs,
		Short: "Install an unpacked archive (for scripts/get.sh)",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !filepath.IsAbs(prefix) || !filepath.IsAbs(tree) {
				return usagef("--prefix and --tree must be absolute paths")
			}
			if r.Key != "" {
				if _, err := release.ParseKey(r.Key); err != nil {
					return usageError{err}
				}
			}
			r.Version = buildinfo.Version
			p := &release.Place{Prefix: filepath.Clean(prefix), Home: os.Getenv("HOME"), Run: release.Run,
				Units: unitsFor(filepath.Clean(prefix), service)}
			unlock, err := p.Lock()
			if err != nil {
				return err
			}
			defer unlock()
			if err := p.Install(cmd.Context(), tree, name, r); err != nil {
				return err
			}
			if !service {
				return nil
			}
			for _, c := range release.StartCommands(runtime.GOOS, p.System(), os.Getenv("HOME")) {
				if err := p.Run(cmd.Context(), c[0], c[1:]...); err != nil {
					fmt.Fprintf(os.Stderr, "not started as a service (%s: %v); start it with uma-serve\n",
						strings.Join(c, " "), err)
					return nil
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&tree, "tree", "", "the unpacked archive, which is moved")
	f.StringVar(&prefix, "prefix", "", "where to install")
	f.StringVar(&name, "name", "", "the name of the version's folder")
	f.StringVar(&r.URL, "url", "", "where the release is")
	f.StringVar(&r.Key, "key", "", "the key that signs it")
	f.BoolVar(&service, "service", false, "install the service files and start the service")
	return cmd
}
