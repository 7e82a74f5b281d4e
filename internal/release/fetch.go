package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Limits of a download.
const (
	maxSumsBytes    = 256 << 10
	maxSigBytes     = 16 << 10
	maxArchiveBytes = 1 << 30
	stall           = 60 * time.Second // without a byte
)

// Source is a release on a web server.
type Source struct {
	URL    string // of its folder
	Key    *Key
	Client *http.Client
	Stall  time.Duration // a transfer without a byte for this long fails; 0 = a minute
}

// CheckURL refuses URLs that no release can have.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.RawQuery != "" ||
		u.Fragment != "" || u.User != nil {
		return fmt.Errorf("%q is no address of a release; it must be an https:// URL of the folder with SHA256SUMS",
			text)
	}
	return nil
}

// Archives returns the archives of the release whose signature is verified.
func (s *Source) Archives(ctx context.Context) ([]Archive, error) {
	sums, err := s.small(ctx, "SHA256SUMS", maxSumsBytes)
	if err != nil {
		return nil, err
	}
	sig, err := s.small(ctx, "SHA256SUMS.sig", maxSigBytes)
	if err != nil {
		return nil, err
	}
	if err := s.Key.Verify(sums, sig); err != nil {
		return nil, fmt.Errorf("%s/SHA256SUMS: %w; nothing was installed", strings.TrimSuffix(s.URL, "/"), err)
	}
	return ParseSums(string(sums))
}

func (s *Source) small(ctx context.Context, name string, limit int64) ([]byte, error) {
	var b strings.Builder
	if err := s.get(ctx, name, limit, &b); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// Fetch downloads an archive into dir and returns the path of the file, whose sum is verified.
func (s *Source) Fetch(ctx context.Context, a Archive, dir string) (path string, err error) {
	path = filepath.Join(dir, a.Name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("save %s: %w", a.Name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	sum := sha256.New()
	err = s.get(ctx, a.Name, maxArchiveBytes, io.MultiWriter(f, sum))
	if cerr := f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("save %s: %w", a.Name, cerr)
	}
	if err != nil {
		return "", err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != a.SHA256 {
		return "", fmt.Errorf("%s has the SHA-256 %s, and SHA256SUMS says %s: the file is damaged or was exchanged; "+
			"nothing was installed", a.Name, got, a.SHA256)
	}
	return path, nil
}

// get copies a file of the release to w.
func (s *Source) get(ctx context.Context, name string, limit int64, w io.Writer) error {
	address := strings.TrimSuffix(s.URL, "/") + "/" + url.PathEscape(name)
	limitFor := s.Stall
	if limitFor == 0 {
		limitFor = stall
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(limitFor, func() { cancel(fmt.Errorf("no byte came for %v", limitFor)) })
	defer timer.Stop()
	fail := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("download %s: %w", address, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fail(err)
	}
	req.Header.Set("Accept-Encoding", "identity") // else a server's Content-Encoding would unpack the archive
	resp, err := s.Client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return fail(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fail(fmt.Errorf("the server answered %s", resp.Status))
	}
	if resp.ContentLength > limit {
		return fail(fmt.Errorf("it has %d bytes; the limit is %d", resp.ContentLength, limit))
	}
	n, err := io.Copy(w, io.LimitReader(&watched{resp.Body, timer, limitFor}, limit+1))
	switch {
	case err != nil:
		return fail(err)
	case n > limit:
		return fail(fmt.Errorf("it has more than %d bytes", limit))
	case resp.ContentLength >= 0 && n < resp.ContentLength:
		return fail(io.ErrUnexpectedEOF)
	}
	return nil
}

// watched puts off a timer with each byte that comes.
type watched struct {
	io.Reader
	timer *time.Timer
	limit time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.timer.Reset(w.limit)
	}
	return n, err
}
