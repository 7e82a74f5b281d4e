package pull

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Limits of what a server may send and take.
const (
	maxHeaderBytes   = 128 << 10
	maxRedirects     = 10
	headerTimeout    = 30 * time.Second // from the request to the end of the answer's header
	connectTimeout   = 20 * time.Second // for TCP, and again for TLS
	metadataTimeout  = 90 * time.Second // for an answer in JSON, whole
	maxErrorBytes    = 4 << 10          // of an error's text that are read
	metadataAttempts = 7                // with pauses of 0.5 s to 16 s, half a minute in all

	notedPause = 2 * time.Second // shorter pauses are not told
	notePause  = 5 * time.Second // between two notes of pauses
)

// doer sends a request: an http.Client, or one that adds what the host asks for.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

// web is HTTP under the rules of one source: which hosts may be asked, and how an answer is bounded.
type web struct {
	client *http.Client
	origin *url.URL
	allow  []string // hosts beside the origin's; each stands for its subdomains, too
	agent  string
	note   func(string)

	mu    sync.Mutex
	noted time.Time // when wait told the last time; owned by mu
}

func newWeb(cfg *Config, origin *url.URL, allow []string) *web {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second}
	dial := dialer.DialContext
	if cfg.dial != nil {
		dial = cfg.dial
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // HTTP/2 would carry all ranges over one TCP connection
	w := &web{origin: origin, allow: append(allow, cfg.AllowHosts...), agent: cfg.Agent, note: cfg.Observer.Note}
	w.client = &http.Client{
		CheckRedirect: w.redirect,
		Transport: guard{w, &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dial, Protocols: protocols,
			TLSClientConfig: &tls.Config{RootCAs: cfg.roots}, TLSHandshakeTimeout: connectTimeout,
			ResponseHeaderTimeout: headerTimeout, MaxResponseHeaderBytes: maxHeaderBytes,
			MaxIdleConnsPerHost: cfg.Connections, IdleConnTimeout: time.Minute,
			DisableCompression: true, // ranges of a compressed body are of no use
		}},
	}
	return w
}

func (w *web) close() { w.client.CloseIdleConnections() }

// guard holds every request to the rules: the first, redirects, and those to a registry's token server.
type guard struct {
	web *web
	*http.Transport
}

func (g guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := g.web.check(req.URL); err != nil {
		return nil, err
	}
	return g.Transport.RoundTrip(req)
}

// check refuses a URL that is not under the rules: https to a known host, or the origin itself, or loopback when the
// origin is on loopback.
func (w *web) check(u *url.URL) error {
	host := strings.ToLower(u.Hostname())
	known := func() bool {
		if u.Host == w.origin.Host || loopback(host) && loopback(w.origin.Host) {
			return true
		}
		for _, a := range w.allow {
			if host == a || strings.HasSuffix(host, "."+a) {
				return true
			}
		}
		return false
	}
	refuse := func(why, do string) error {
		return &Error{Kind: ErrRefused, What: fmt.Sprintf("%s sends the download to %.100s, %s", w.origin.Host,
			u.Scheme+"://"+u.Host, why), Do: do}
	}
	switch {
	case u.User != nil:
		return refuse("with a password in the address", "try again later, or pull from another source")
	case !known():
		return refuse("which is no host of this source", fmt.Sprintf("if you trust it: --allow-host %s", host))
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && w.origin.Scheme == "http" && (u.Host == w.origin.Host || loopback(host)):
		return nil
	}
	return refuse("which is not https", "try again later, or pull from another source")
}

// redirect is the client's CheckRedirect: it keeps what belongs to one host from the next. net/http makes the header of
// each redirected request from the first one's, so that a token is taken away at every hop after the first that left
// the host, also when a later one leads back.
func (w *web) redirect(req *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return &Error{Kind: ErrServer, What: fmt.Sprintf("%s redirects more than %d times", w.origin.Host,
			maxRedirects),
			Do: "try again later, or pull from another source"}
	}
	for _, hop := range append(via[1:len(via):len(via)], req) {
		if first := via[0].URL; hop.URL.Host != first.Host || hop.URL.Scheme != first.Scheme {
			req.Header.Del("Authorization")
		}
	}
	req.Header.Del("Referer") // a signed address is not for other hosts
	return nil
}

// fault is an error of one request. A temporary one may be gone at the next attempt.
type fault struct {
	err       error
	temporary bool
	busy      bool          // the server says that it is asked too much
	after     time.Duration // what the server says to wait; 0 = nothing
	status    int           // of the answer, 0 = there was none
	code      string        // X-Error-Code of the hub
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

func temporary(format string, a ...any) *fault {
	return &fault{err: fmt.Errorf(format, a...), temporary: true}
}

// send sends one request by way of d. An answer of a status other than 200 and 206 is a fault, and so is none.
func (w *web) send(ctx context.Context, d doer, address string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("User-Agent", w.agent)
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := d.Do(req)
	if err != nil {
		return nil, w.transport(ctx, err)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
		if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
			resp.Body.Close()
			return nil, temporary("%s compresses the answer (%.20q), which was not asked for", resp.Request.URL.Host, e)
		}
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, answer(resp)
}

// transport describes an error of the client: ours as it is, one of certificates as final, others as temporary.
func (w *web) transport(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if ours, ok := errors.AsType[*Error](err); ok {
		return ours
	}
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // its address may be signed
	}
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &Error{Kind: ErrNetwork, What: "the certificate of " + w.origin.Host +
			" or of its download host is not valid",
			Err: cert.Err,
			Do:  "check this machine's clock; behind a proxy that inspects TLS, name its certificate in SSL_CERT_FILE"}
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return &Error{Kind: ErrNetwork, What: "the certificate of " + w.origin.Host +
			" is signed by an unknown authority", Err: err,
			Do: "behind a proxy that inspects TLS, name its certificate in SSL_CERT_FILE"}
	}
	return &fault{err: err, temporary: true}
}

// answer describes an answer that is no file and no JSON.
func answer(resp *http.Response) *fault {
	message := resp.Header.Get("X-Error-Message")
	if message == "" {
		message = errorText(resp)
	}
	text := fmt.Sprintf("%s answers %d", resp.Request.URL.Host, resp.StatusCode)
	if name := http.StatusText(resp.StatusCode); name != "" {
		text += " " + name
	}
	if message != "" {
		text += fmt.Sprintf(": %.200s", message)
	}
	f := statusFault(resp.StatusCode, errors.New(text))
	f.code, f.after = resp.Header.Get("X-Error-Code"), retryAfter(resp.Header, time.Now())
	return f
}

// statusFault returns the fault of an answer with this status.
func statusFault(status int, err error) *fault {
	f := &fault{err: err, status: status}
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		f.temporary, f.busy = true, true
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status >= 500 &&
		status != http.StatusNotImplemented:
		f.temporary = true
	}
	return f
}

// errorText returns the message in an error's JSON, of the hub's or of a registry's form; "" = none.
func errorText(resp *http.Response) string {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	var body struct {
		Error  any `json:"error"`
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	if err != nil || json.Unmarshal(b, &body) != nil {
		return ""
	}
	if text, ok := body.Error.(string); ok {
		return text
	}
	if len(body.Errors) > 0 {
		return body.Errors[0].Message
	}
	return ""
}

// fetchJSON asks for address until it has an answer of at most limit bytes, and decodes it into v. It returns the
// answer's header.
func (w *web) fetchJSON(ctx context.Context, d doer, address string, header http.Header, limit int64,
	v any) (http.Header, error) {
	var got http.Header
	b, err := w.fetchBytes(ctx, d, address, header, limit, &got)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, &Error{Kind: ErrServer, What: fmt.Sprintf("the answer of %s is not the JSON it should be",
			w.origin.Host), Err: err,
			Do: "check HF_ENDPOINT, and whether a login page of this network answers instead; try again later"}
	}
	return got, nil
}

// fetchBytes asks for address until it has an answer of at most limit bytes.
func (w *web) fetchBytes(ctx context.Context, d doer, address string, header http.Header, limit int64,
	got *http.Header) (body []byte, err error) {
	err = w.retry(ctx, metadataAttempts, func() error {
		ctx, cancel := context.WithTimeoutCause(ctx, metadataTimeout, temporary("%s takes longer than %v",
			w.origin.Host, metadataTimeout))
		defer cancel()
		resp, err := w.send(ctx, d, address, header)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
		switch {
		case int64(len(body)) > limit:
			return &Error{Kind: ErrServer, What: fmt.Sprintf("the answer of %s is longer than %d bytes", w.origin.Host,
				limit),
				Do: "check the name; pull from another source"}
		case err != nil:
			return w.transport(ctx, err)
		}
		if got != nil {
			*got = resp.Header
		}
		return nil
	})
	return body, err
}

// retry calls op until it succeeds, its error is not temporary, or attempts are used up.
func (w *web) retry(ctx context.Context, attempts int, op func() error) error {
	for n := 0; ; n++ {
		err := op()
		f, ok := errors.AsType[*fault](err)
		if err == nil || !ok || !f.temporary || ctx.Err() != nil {
			return err
		}
		if n+1 == attempts {
			return gaveUp(f)
		}
		if err := w.wait(ctx, n, f); err != nil {
			return err
		}
	}
}

// gaveUp is the error after the last attempt.
func gaveUp(f *fault) error {
	do := "check the connection and pull again: what is here is kept"
	if f.status != 0 {
		do = "pull again later: what is here is kept"
	}
	return &Error{Kind: ErrNetwork, What: "the server cannot be reached or does not work, after several attempts",
		Err: f.err, Do: do}
}

// wait pauses after the nth failure in a row, at least for as long as the server says.
func (w *web) wait(ctx context.Context, n int, f *fault) error {
	pause := max(backoff(n), f.after)
	if f.after > maxRetryAfter {
		return &Error{Kind: ErrNetwork, What: fmt.Sprintf("%s; it says to wait %v", f, f.after.Round(time.Second)),
			Do: "pull again then: what is here is kept"}
	}
	if pause >= notedPause {
		w.mu.Lock()
		tell := time.Since(w.noted) >= notePause // not for each connection
		if tell {
			w.noted = time.Now()
		}
		w.mu.Unlock()
		if tell {
			w.note(fmt.Sprintf("%s; next attempt in %v", f, pause.Round(time.Second)))
		}
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
