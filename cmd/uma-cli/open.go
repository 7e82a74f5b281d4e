package main

import (
	"errors"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
)

func newOpen(dial dialer) *cobra.Command {
	listen, noBrowser := "", false
	cmd := &cobra.Command{
		Use:   "open",
		Short: "Open the daemon's web page: a chat and a live view of the server",
		Long: `Open the daemon's web page in the browser: a chat and a live view of the server (decode
steps, each stream's ITL against its target, the KV pool, the queue, why a request waited).

A browser cannot open a Unix socket. While it runs, uma-cli open therefore serves the page on a loopback port and
forwards requests to the socket, as uma-cli proxy does; Ctrl-C ends it and every answer that passes through it.
Only processes of your user may use the port: on Linux the kernel identifies the user of a connection; on other systems
the address contains a key, new each time. Web pages of other origins are refused.

Without a browser (no display, or --no-browser) the address is only printed. For a daemon on another machine,
run ssh -L 8737:127.0.0.1:8737 HOST and uma-cli open --listen 8737 there, and open the printed address here.`,
		Example: `  uma-cli open
  uma-cli open --no-browser --listen 8737   # behind ssh -L 8737:127.0.0.1:8737
  BROWSER=firefox uma-cli open`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return openPage(cmd, dial, listen, noBrowser) },
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback `ADDRESS:PORT` or port to listen on; port 0 = "+
		"any free port")
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "print the address only")
	cmd.Flags().SortFlags = false
	return cmd
}

// openPage serves the page on a port until the user ends it.
func openPage(cmd *cobra.Command, dial dialer, listen string, noBrowser bool) error {
	p, served, closeAll, err := forward(cmd.Context(), dial, listen)
	if err != nil {
		return err
	}
	defer closeAll()
	if !noBrowser {
		address, remove, err := browserAddress(p.PageURL(), p.NeedsKey())
		if err != nil {
			return err
		}
		defer remove()
		if !openBrowser(address) {
			ui.Open(os.Stderr).Println("no browser was found here: open the address in one; Ctrl-C ends")
		}
	}
	return awaitEnd(cmd.Context(), p.PageURL(), served)
}

// browserAddress returns the address to start a browser with. A key (secret) must not be on a command line, which every
// user can read: the address is then that of a file, readable by this user alone, that leads to url. remove deletes it.
func browserAddress(url string, secret bool) (address string, remove func(), err error) {
	if !secret {
		return url, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "uma-open") // 0700
	if err != nil {
		return "", nil, err
	}
	file := filepath.Join(dir, "open.html")
	text := `<!doctype html><meta charset="utf-8"><title>uma-serve</title><meta http-equiv="refresh" content="0;url=` +
		html.EscapeString(url) + `">`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return "file://" + file, func() { _ = os.RemoveAll(dir) }, nil
}

// openBrowser starts the user's browser: $BROWSER, or the system's way to open an address. false: there is none.
func openBrowser(address string) bool {
	var candidates []string
	if b := os.Getenv("BROWSER"); b != "" {
		candidates = append(candidates, b)
	}
	switch {
	case runtime.GOOS == "darwin":
		candidates = append(candidates, "open")
	case os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "":
		candidates = append(candidates, "xdg-open", "gio", "wslview")
	}
	for _, name := range slices.Compact(candidates) {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		args := []string{address}
		if name == "gio" {
			args = []string{"open", address}
		}
		cmd := exec.Command(path, args...)
		cmd.SysProcAttr = apart() // Ctrl-C here does not end the browser
		if cmd.Start() == nil {
			go cmd.Wait()
			return true
		}
	}
	return false
}
