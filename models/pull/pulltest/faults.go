package pulltest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"
)

// record runs rest and returns what it would have answered.
func record(r *http.Request, rest http.HandlerFunc) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	rest(w, r)
	return w
}

// replay sends a recorded answer with another body.
func replay(w http.ResponseWriter, a *httptest.ResponseRecorder, body []byte) {
	for k, v := range a.Header() {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(a.Code)
	w.Write(body)
}

// raw takes the connection over.
func raw(w http.ResponseWriter) net.Conn {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	return c
}

// wire returns a recorded answer as HTTP sends it.
func wire(a *httptest.ResponseRecorder) (header, body []byte) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", a.Code, http.StatusText(a.Code))
	a.Header().Set("Content-Length", strconv.Itoa(a.Body.Len()))
	a.Header().Write(&b)
	b.WriteString("\r\n")
	return b.Bytes(), a.Body.Bytes()
}

// Status answers with a status, and with headers given as names and values in turn.
func Status(code int, headers ...string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
	}
}

// Cut ends the connection after a part of the answer, header included: 0 is none of it, 1 all.
func Cut(part float64) Fault {
	return func(w http.ResponseWriter, r *http.Request, rest http.HandlerFunc) {
		header, body := wire(record(r, rest))
		all := append(header, body...)
		c := raw(w)
		defer c.Close()
		c.Write(all[:int(part*float64(len(all)))])
	}
}

// Short leaves the last n bytes of the body out and says so in Content-Length alone.
func Short(n int) Fault {
	return func(w http.ResponseWriter, r *http.Request, rest http.HandlerFunc) {
		a := record(r, rest)
		replay(w, a, a.Body.Bytes()[:max(0, a.Body.Len()-n)])
	}
}

// Long says in Content-Length that the body has n bytes more than it has.
func Long(n int) Fault {
	return func(w http.ResponseWriter, r *http.Request, rest http.HandlerFunc) {
		a := record(r, rest)
		_, body := wire(a)
		a.Header().Set("Content-Length", strconv.Itoa(len(body)+n))
		var b bytes.Buffer
		fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", a.Code, http.StatusText(a.Code))
		a.Header().Write(&b)
		b.WriteString("\r\n")
		c := raw(w)
		defer c.Close()
		c.Write(append(b.Bytes(), body...))
	}
}

// Header changes a header of the answer.
func Header(name string, change func(string) string) Fault {
	return func(w http.ResponseWriter, r *http.Request, rest http.HandlerFunc) {
		a := record(r, rest)
		a.Header().Set(name, change(a.Header().Get(name)))
		replay(w, a, a.Body.Bytes())
	}
}

// Corrupt flips a bit in the body at a part of its length.
func Corrupt(part float64) Fault {
	return func(w http.ResponseWriter, r *http.Request, rest http.HandlerFunc) {
		a := record(r, rest)
		body := bytes.Clone(a.Body.Bytes())
		if len(body) > 0 {
			body[int(part*float64(len(body)-1))] ^= 0x10
		}
		replay(w, a, body)
	}
}

// IgnoreRange sends the whole file.
func IgnoreRange(w http.ResponseWriter, r *http.Request, rest http.HandlerFunc) {
	r.Header.Del("Range")
	rest(w, r)
}

// Gzip compresses the body, and says so if told.
func Gzip(say bool) Fault {
	return func(w http.ResponseWriter, r *http.Request, rest http.HandlerFunc) {
		a := record(r, rest)
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(a.Body.Bytes())
		z.Close()
		if say {
			a.Header().Set("Content-Encoding", "gzip")
		}
		replay(w, a, b.Bytes())
	}
}

// EndlessHeader sends header lines until the client has enough.
func EndlessHeader(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
	c := raw(w)
	defer c.Close()
	fmt.Fprint(c, "HTTP/1.1 200 OK\r\n")
	for i := 0; ; i++ {
		if _, err := fmt.Fprintf(c, "X-Padding-%d: %s\r\n", i, strings.Repeat("x", 1000)); err != nil {
			return
		}
	}
}

// EndlessJSON sends an array until the client has enough.
func EndlessJSON(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, "[")
	for {
		if _, err := fmt.Fprint(w, strings.Repeat(`{"type":"file","path":"x.gguf"},`, 2048)); err != nil {
			return
		}
	}
}

// Redirect redirects to an address.
func Redirect(to string) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
		http.Redirect(w, r, to, http.StatusFound)
	}
}

// RedirectLoop redirects to the same address again and again.
func RedirectLoop(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
	http.Redirect(w, r, "http://"+r.Host+r.URL.String(), http.StatusFound)
}

// Slow sends n bytes of the body at a time, with a pause before each.
func Slow(n int, pause time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, rest http.HandlerFunc) {
		a := record(r, rest)
		body := a.Body.Bytes()
		for k, v := range a.Header() {
			w.Header()[k] = v
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(a.Code)
		for len(body) > 0 {
			if !wait(r, pause) {
				return
			}
			k := min(n, len(body))
			if _, err := w.Write(body[:k]); err != nil {
				return
			}
			body = body[k:]
			w.(http.Flusher).Flush()
		}
	}
}

// Stall sends the beginning of the body, and then nothing until the client goes away.
func Stall(part float64) Fault {
	return func(w http.ResponseWriter, r *http.Request, rest http.HandlerFunc) {
		a := record(r, rest)
		body := a.Body.Bytes()
		for k, v := range a.Header() {
			w.Header()[k] = v
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(a.Code)
		w.Write(body[:int(part*float64(len(body)))])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// Silence answers nothing until the client goes away.
func Silence(_ http.ResponseWriter, r *http.Request, _ http.HandlerFunc) { <-r.Context().Done() }

// Page answers with a web page, as a network with a login page does.
func Page(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprint(w, "<!doctype html><title>Log in</title>", strings.Repeat(" ", 4096))
}

// wait waits, unless the client goes away.
func wait(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// Kinds are names of faults, for Random.
var Kinds = []string{"429", "429 date", "429 ratelimit", "429 for hours", "503", "500", "502 without body", "404",
	"403", "cut", "cut in header", "closed",
	"short", "long", "total", "range", "no range", "etag", "corrupt", "ignore range", "gzip", "gzip unsaid",
	"endless header", "endless json",
	"forbidden host", "forbidden scheme", "file url", "loop", "slow", "stall", "silence", "page", "empty"}

// Random returns a fault of a kind, with random details.
func Random(kind string, rng *rand.Rand) Fault {
	seconds := strconv.Itoa(rng.IntN(40))
	switch kind {
	case "429":
		return Status(http.StatusTooManyRequests, "Retry-After", seconds)
	case "429 date":
		return Status(http.StatusTooManyRequests, "Retry-After",
			time.Now().Add(time.Duration(rng.IntN(100))*time.Second).UTC().Format(http.TimeFormat))
	case "429 ratelimit":
		return Status(http.StatusTooManyRequests, "RateLimit", `"api";r=0;t=`+seconds)
	case "429 for hours":
		return Status(http.StatusTooManyRequests, "Retry-After", "7200")
	case "503":
		return Status(http.StatusServiceUnavailable, "Retry-After", seconds)
	case "500":
		return Status(http.StatusInternalServerError)
	case "502 without body":
		return Status(http.StatusBadGateway, "Connection", "close")
	case "404":
		return Status(http.StatusNotFound)
	case "403":
		return Status(http.StatusForbidden)
	case "cut":
		return Cut(rng.Float64())
	case "cut in header":
		return Cut(rng.Float64() / 100)
	case "closed":
		return Cut(0)
	case "short":
		return Short(1 + rng.IntN(5000))
	case "long":
		return Long(1 + rng.IntN(5000))
	case "total":
		return Header("Content-Range", func(v string) string { return v + "0" })
	case "range":
		return Header("Content-Range", func(v string) string { return strings.Replace(v, "bytes ", "bytes 1", 1) })
	case "no range":
		return Header("Content-Range", func(string) string { return "" })
	case "etag":
		etag := fmt.Sprintf(`"%x"`, rng.Uint64())
		return Header("Etag", func(string) string { return etag })
	case "corrupt":
		return Corrupt(rng.Float64())
	case "ignore range":
		return IgnoreRange
	case "gzip":
		return Gzip(true)
	case "gzip unsaid":
		return Gzip(false)
	case "endless header":
		return EndlessHeader
	case "endless json":
		return EndlessJSON
	case "forbidden host":
		return Redirect("https://evil.example/file.gguf")
	case "forbidden scheme":
		return Redirect("http://evil.example/file.gguf")
	case "file url":
		return Redirect("file:///etc/passwd")
	case "loop":
		return RedirectLoop
	case "slow":
		return Slow(1+rng.IntN(4000), time.Duration(1+rng.IntN(3000))*time.Millisecond)
	case "stall":
		return Stall(rng.Float64())
	case "silence":
		return Silence
	case "page":
		return Page
	case "empty":
		return Status(http.StatusOK)
	}
	panic("unknown fault " + kind)
}

// OfFiles returns a Server.Fault that injects a fault into the answers that bring files, not into the questions before.
func OfFiles(fault Fault) func(*http.Request) Fault {
	return func(r *http.Request) Fault {
		if strings.HasPrefix(r.URL.Path, "/cdn/") || strings.Contains(r.URL.Path, "/resolve/") &&
			!strings.HasPrefix(r.URL.Path, "/api/") {
			return fault
		}
		return nil
	}
}
