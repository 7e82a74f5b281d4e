package pull

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
)

// Connections to one server: the default and the most.
const (
	DefaultConnections = 8
	MaxConnections     = 32
)

// Config has the sources, limits and observer of a Puller. FromEnv fills in the environment's values.
type Config struct {
	Offline     bool     // every pull is refused
	Memory      uint64   // bytes that a model may take, for the choice of a quantisation; 0 = unknown
	Connections int      // parallel ranges of a file; 0 = DefaultConnections
	Endpoint    string   // the hub's address; "" = https://huggingface.co
	Token       string   // the hub's, "" = none
	TextAlone   bool     // the projector, with which a model reads images, is left out
	AllowHosts  []string // hosts that downloads may be redirected to, beside those of the source
	Agent       string   // User-Agent
	Observer    Observer

	dial    func(ctx context.Context, network, address string) (net.Conn, error) // nil = a net.Dialer's
	roots   *x509.CertPool                                                       // nil = the system's
	segment int64                                                                // 0 = segmentBytes
	sync    func(*os.File) error                                                 // nil = syncData
	writeAt func(f *os.File, b []byte, at int64) (int, error)                    // nil = (*os.File).WriteAt
	space   func(dir string) (uint64, error)                                     // nil = freeSpace
}

// Observer receives the events of a pull. Its functions are called from one goroutine at a time; nil ones are not
// called.
type Observer struct {
	Chosen   func(Choice)   // the choice, before the first byte
	Progress func(Progress) // ten times a second
	Note     func(string)   // a sentence about a retry or a wait
}

// serial is o for many goroutines: its functions are called one after the other.
func (o Observer) serial() Observer {
	mu := new(sync.Mutex)
	return Observer{
		Chosen:   func(c Choice) { locked(mu, o.Chosen, c) },
		Progress: func(p Progress) { locked(mu, o.Progress, p) },
		Note:     func(text string) { locked(mu, o.Note, text) },
	}
}

func locked[T any](mu *sync.Mutex, f func(T), arg T) {
	if f == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	f(arg)
}

// Choice is the model and the files that a name was resolved to.
type Choice struct {
	Name  string   // the model, in its short form
	Files []string // their names in the source
	Sums  []string // their hashes: "sha256:…", or "git-sha1:…" of small files of the hub
	Bytes int64    // of all files
	Why   string   // why this quantisation, or that it does not fit; "" = it was asked for, and fits
	Left  []string // files that belong to the model and are left out, with the reason
}

// Progress is the state of one file's download.
type Progress struct {
	File   string
	Number int   // from 1
	Of     int   // files
	Done   int64 // bytes on the disk, those of earlier pulls included
	Total  int64 // bytes
	Shared bool  // another process downloads the file; this one waits for it
}

// Model is a pulled model.
type Model struct {
	Name  string
	Files []string // paths, in order; the first is the one to open, a projector the last
	Bytes int64
}

// Puller pulls models. It is safe for concurrent use.
type Puller struct{ cfg Config }

// New checks cfg and returns a Puller. It asks nothing of the network.
func New(cfg Config) (*Puller, error) {
	if cfg.Connections == 0 {
		cfg.Connections = DefaultConnections
	}
	if cfg.Connections < 1 || cfg.Connections > MaxConnections {
		return nil, fmt.Errorf("%d connections; want 1 to %d", cfg.Connections, MaxConnections)
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = hubEndpoint
	}
	if _, err := endpoint(cfg.Endpoint); err != nil {
		return nil, err
	}
	if strings.ContainsFunc(cfg.Token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, errors.New("the token (HF_TOKEN, or its file) has a character that tokens do not have")
	}
	for i, h := range cfg.AllowHosts {
		if !hostRE.MatchString(h) || strings.Contains(h, ":") {
			return nil, fmt.Errorf("%.100q is no name of a host", h)
		}
		cfg.AllowHosts[i] = strings.ToLower(h)
	}
	if cfg.Agent == "" {
		cfg.Agent = "uma-serve"
	}
	if cfg.segment == 0 {
		cfg.segment = segmentBytes
	}
	if cfg.sync == nil {
		cfg.sync = syncData
	}
	if cfg.writeAt == nil {
		cfg.writeAt = (*os.File).WriteAt
	}
	if cfg.space == nil {
		cfg.space = freeSpace
	}
	return &Puller{cfg}, nil
}

// source is one kind of server.
type source interface {
	plan(ctx context.Context) (*plan, error) // resolves the name
	login() doer                             // of requests to the address of a file
	explain(err error) error                 // turns a refusal of the server into an *Error
	rules() *web
}

// plan is a Choice with the addresses and checksums of its files.
type plan struct {
	Choice
	files  []remote
	record Record // without what differs by file
}

// Pull downloads the model that name says (see Parse) into the models folder dir, which is made if it is missing, and
// returns its files. Files that are there, whole, are not downloaded again. Every error is an *Error. When ctx ends,
// what is here is kept for the next Pull, and the error is of kind ErrInterrupted.
func (p *Puller) Pull(ctx context.Context, name, dir string) (Model, error) {
	ref, err := Parse(name)
	if err != nil {
		return Model{}, err
	}
	if p.cfg.Offline {
		return Model{}, &Error{Kind: ErrOffline,
			What: fmt.Sprintf("%s is not pulled: --offline, UMA_OFFLINE or HF_HUB_OFFLINE is set", ref),
			Do:   "pull it without them"}
	}
	p = &Puller{p.cfg}
	p.cfg.Observer = p.cfg.Observer.serial()
	src, err := p.source(ref)
	if err != nil {
		return Model{}, err
	}
	defer src.rules().close()
	pl, err := src.plan(ctx)
	if err != nil {
		return Model{}, p.final(ctx, src, err)
	}
	for i := range pl.files {
		pl.Choice.Sums = append(pl.Choice.Sums, pl.files[i].sum.String())
	}
	p.cfg.Observer.Chosen(pl.Choice)
	folder, err := makeFolder(dir, ref.Folder())
	if err == nil {
		err = p.checkSpace(folder, pl)
	}
	m := Model{Name: pl.Name, Bytes: pl.Bytes}
	for i := range pl.files {
		if err != nil {
			break
		}
		j := &job{Puller: p, src: src, plan: pl, number: i + 1, remote: pl.files[i], folder: folder,
			path: filepath.Join(folder, filepath.FromSlash(pl.files[i].dest()))}
		m.Files = append(m.Files, j.path)
		err = j.run(ctx)
	}
	if err != nil {
		return Model{}, p.final(ctx, src, err)
	}
	return m, nil
}

func (p *Puller) source(ref Ref) (source, error) {
	if ref.Hub {
		return newHub(&p.cfg, ref)
	}
	return newRegistry(&p.cfg, ref), nil
}

// final makes an *Error of any error.
func (p *Puller) final(ctx context.Context, src source, err error) error {
	if ours, ok := errors.AsType[*Error](err); ok {
		return ours
	}
	if ctx.Err() != nil {
		return &Error{Kind: ErrInterrupted, What: "interrupted", Do: "the same command goes on from here"}
	}
	if f, ok := errors.AsType[*fault](err); ok {
		if f.temporary {
			return gaveUp(f)
		}
		return src.explain(f)
	}
	return fileError(err)
}

// makeFolder makes the folder rel (with slashes) in dir. Folders get the permissions of dir, see share.
func makeFolder(dir, rel string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fileError(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", fileError(err)
	}
	path := dir
	for part := range strings.SplitSeq(rel, "/") {
		path = filepath.Join(path, part)
		if err := makeDir(path, info); err != nil {
			return "", fileError(err)
		}
	}
	return path, nil
}

// checkSpace returns an error when the disk cannot hold the missing bytes of pl.
func (p *Puller) checkSpace(folder string, pl *plan) error {
	var missing int64
	for _, f := range pl.files {
		path := filepath.Join(folder, filepath.FromSlash(f.dest()))
		if st, err := os.Stat(path); err == nil && st.Size() == f.size {
			continue
		}
		missing += f.size
		if st, err := os.Stat(path + ".part"); err == nil {
			missing -= min(allocated(st), f.size)
		}
	}
	free, err := p.cfg.space(folder)
	if err != nil {
		return fileError(err)
	}
	if uint64(missing) > free {
		return &Error{Kind: ErrSpace, What: fmt.Sprintf("%s needs %s more on the disk of %s, which has %s free",
			pl.Name,
			ui.Bytes(uint64(missing)), folder, ui.Bytes(free)),
			Do: fmt.Sprintf("free %s, name a folder on another disk with --models-dir, or pull a smaller quantisation",
				ui.Bytes(uint64(missing)-free))}
	}
	return nil
}
