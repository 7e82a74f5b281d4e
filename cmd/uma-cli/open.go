package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/internal/ui"
)

func newOpen(dial dialer) *cobra.Command {
	port, noBrowser := 0, false
	cmd := &cobra.Command{
		Use:   "open",
		Short: "Open the daemon's web page: a chat, and what the machine is doing",
		Long: `Open the daemon's web page in the browser: a chat, and a live view of what the machine is doing (decode steps, each
stream's ITL against its target, the KV pool, the queue, why a request waited).

A browser cannot open a Unix socket. While it runs, uma-cli open therefore serves the page on a port of 127.0.0.1 and
passes requests on to the socket; Ctrl-C ends it, and with it every answer that comes through it. The address that it
prints holds a key, new each time: programs of other users cannot use the port without it. The daemon takes what comes
through it for requests of your user.

Without a browser (no display, or --no-browser) the address is only printed. From another machine:
ssh -L 8737:127.0.0.1:8737 HOST, then uma-cli open --port 8737 there and the printed address here.`,
		Example: `  uma-cli open
  uma-cli open --no-browser --port 8737     # behind ssh -L 8737:127.0.0.1:8737
  BROWSER=firefox uma-cli open`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port < 0 || port > 65535 {
				return usagef("--port is %d; it must be 0…65535", port)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			c, err := dial(ctx) // a daemon that does not answer is told before a browser shows it
			if err != nil {
				return err
			}
			socket := c.Socket()
			c.Close()
			l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
			if err != nil {
				return fmt.Errorf("--port %d: %w", port, err)
			}
			d := newDoor(l.Addr().(*net.TCPAddr).Port, client.HTTP(socket).Transport)
			out := ui.Open(os.Stdout)
			if err := out.Println(d.address()); err != nil {
				return err
			}
			if !noBrowser && !openBrowser(d.address()) {
				ui.Open(os.Stderr).Println("no browser was found here: open the address in one; Ctrl-C ends")
			}
			return d.serve(ctx, l)
		},
	}
	cmd.Flags().IntVar(&port, "port", 0, "listen on this `PORT` of 127.0.0.1; 0: any free one")
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "print the address only")
	cmd.Flags().SortFlags = false
	return cmd
}

// door passes requests that come to a port of 127.0.0.1 on to the daemon's socket. Every process of the machine reaches
// the port, and the daemon takes what comes through for its user's: a key, which the address holds and a cookie keeps,
// tells the user's browser from others.
type door struct {
	host   string // 127.0.0.1:PORT, as the browser names it
	key    string
	cookie string // its name; cookies do not know ports
	proxy  http.Handler
}

func newDoor(port int, daemon http.RoundTripper) *door {
	host := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return &door{
		host: host, key: rand.Text(), cookie: "uma_open_" + strconv.Itoa(port),
		proxy: &httputil.ReverseProxy{
			Transport: daemon, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: "http", Host: "uma-serve"})
				// The checks of a browser's request are made here: to the daemon, it is one of this program's.
				for _, name := range []string{"Origin", "Referer", "Cookie", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Sec-Fetch-User"} {
					r.Out.Header.Del(name)
				}
			},
			ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
				if r.Context().Err() == nil {
					http.Error(w, "the daemon does not answer: "+err.Error(), http.StatusBadGateway)
				}
			},
		},
	}
}

// address is what a browser opens.
func (d *door) address() string { return "http://" + d.host + "/?key=" + d.key }

// ServeHTTP lets in who has the key.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Host != d.host { // another name for this address is a page elsewhere that had its name changed (DNS rebinding)
		http.Error(w, fmt.Sprintf("this is http://%s, not %q", d.host, r.Host), http.StatusMisdirectedRequest)
		return
	}
	if given := r.URL.Query().Get("key"); given != "" && r.URL.Path == "/" && d.isKey(given) {
		http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.key, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, "/", http.StatusSeeOther) // the key leaves the address bar
		return
	}
	if c, err := r.Cookie(d.cookie); err != nil || !d.isKey(c.Value) {
		http.Error(w, "the key is missing: open the address that uma-cli open printed", http.StatusForbidden)
		return
	}
	d.proxy.ServeHTTP(w, r)
}

func (d *door) isKey(given string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(d.key)) == 1
}

// serve answers until ctx ends.
func (d *door) serve(ctx context.Context, l net.Listener) error {
	// Another page on this machine has the same site, whose cookies its requests carry; only its origin tells it apart.
	s := &http.Server{
		Handler: http.NewCrossOriginProtection().Handler(d), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(io.Discard, "", 0),
	}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
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
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C here does not end the browser
		if cmd.Start() == nil {
			go cmd.Wait()
			return true
		}
	}
	return false
}
