// Package toolbox has the MCP servers of the configuration, as the daemon uses them: it lists and calls their tools.
//
// Each server has a bridge, a process that is confined with it (package mcp has its other end). The first question
// starts the bridge, which ends when it is idle, fails, or breaks a limit; its whole process group ends with it.
// Package setup has the limits.
package toolbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
)

// BridgeArg is the first argument of a program that is a bridge.
const BridgeArg = "mcp-bridge"

// Options configure a Box. Program and Args start a bridge; Log gets the failures.
type Options struct {
	Program string
	Args    []string
	Log     *slog.Logger
	// The times that tests shorten; 0 = setup's.
	Start, List, Idle, FailedFor time.Duration
}

// Box has the servers. Its methods are safe for concurrent use.
type Box struct {
	opts    Options
	servers map[string]*server
	names   []string
}

// server is one server and its bridge.
type server struct {
	box   *Box
	setup setup.Server
	calls chan struct{} // a slot for each question

	mu     sync.Mutex
	bridge *bridge // nil: none runs
	failed time.Time
	why    error
	closed bool

	count   sync.Mutex
	counts  Counts
	started *bridge // the newest
}

// New returns a Box for servers. It starts none.
func New(servers []setup.Server, o Options) *Box {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.Start, setup.StartTimeout)
	def(&o.List, setup.ListTimeout)
	def(&o.Idle, setup.IdleTimeout)
	def(&o.FailedFor, setup.FailedFor)
	b := &Box{opts: o, servers: map[string]*server{}}
	for i := range servers {
		s := servers[i]
		b.servers[s.Name] = &server{box: b, setup: s, calls: make(chan struct{}, setup.MaxCalls)}
		b.names = append(b.names, s.Name)
	}
	return b
}

// Names returns the servers' names, in the order of the configuration.
func (b *Box) Names() []string { return b.names }

// Server returns the description of a server, nil when there is none.
func (b *Box) Server(name string) *setup.Server {
	if s := b.servers[name]; s != nil {
		return &s.setup
	}
	return nil
}

// List returns the tools of a server that the configuration offers.
func (b *Box) List(ctx context.Context, name string) ([]setup.Tool, error) {
	a, err := b.ask(ctx, name, setup.Question{Kind: setup.List}, b.opts.List)
	if err != nil {
		return nil, err
	}
	if err := setup.CheckTools(a.Tools); err != nil { // the bridge has checked them, and is not trusted
		return nil, fmt.Errorf("MCP server %s: %w", name, err)
	}
	s := b.servers[name]
	offered := []setup.Tool{}
	for _, t := range a.Tools {
		if s.setup.Offers(t.Name) {
			offered = append(offered, t)
		}
	}
	return offered, nil
}

// Call calls a tool. The error is of the server; a tool's own failure is in the result.
func (b *Box) Call(ctx context.Context, name, tool string, arguments json.RawMessage) (*setup.Result, error) {
	s := b.servers[name]
	switch {
	case s == nil || !s.setup.Offers(tool):
		b.Refused(name, setup.RefusedTool)
		return nil, fmt.Errorf("MCP server %.40s has no tool %.80s", name, tool)
	case len(arguments) > setup.MaxArguments:
		b.Refused(name, setup.RefusedArguments)
		return nil, fmt.Errorf("the arguments have %d bytes; the maximum is %d", len(arguments), setup.MaxArguments)
	}
	a, err := b.ask(ctx, name, setup.Question{Kind: setup.Call, Name: tool, Arguments: arguments}, s.setup.Timeout)
	if err != nil {
		return nil, err
	}
	if a.Result == nil {
		return nil, fmt.Errorf("MCP server %s: the bridge answers without a result", name)
	}
	if len(a.Result.Text) > setup.MaxResult+setup.CutNote { // the bridge has cut it, and is not trusted
		a.Result.Text = setup.Cut(a.Result.Text)
	}
	return a.Result, nil
}

// ask asks a server's bridge, which it starts if none runs.
func (b *Box) ask(ctx context.Context, name string, q setup.Question, limit time.Duration) (*setup.Answer, error) {
	s := b.servers[name]
	if s == nil {
		return nil, fmt.Errorf("there is no MCP server %.40q; the configuration file names servers as [mcp.NAME]", name)
	}
	s.enter()
	began := time.Now()
	a, err := s.ask(ctx, q, limit)
	if err == nil && a.Error != "" {
		err = fmt.Errorf("%.2000s", a.Error)
	}
	s.leave(ctx, &q, began, a, err)
	if err != nil {
		return nil, fmt.Errorf("MCP server %s: %w", name, err)
	}
	return a, nil
}

// ask asks the bridge when there is a place.
func (s *server) ask(ctx context.Context, q setup.Question, limit time.Duration) (*setup.Answer, error) {
	select {
	case s.calls <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.calls }()
	br, fresh, err := s.get(ctx)
	if err != nil {
		return nil, err
	}
	a, err := br.question(ctx, q, limit)
	if !fresh && q.Kind == setup.List && br.gone() && !errors.Is(err, errTooSlow) && ctx.Err() == nil {
		// It has ended by an earlier call: a list can be asked for again.
		if br, _, err = s.get(ctx); err == nil {
			a, err = br.question(ctx, q, limit)
		}
	}
	return a, err
}

// question asks br a question, which it must answer within limit, and ends it if its server has ended: the next
// question finds a new one.
func (br *bridge) question(ctx context.Context, q setup.Question, limit time.Duration) (*setup.Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: %v", errTooSlow, limit))
	defer cancel()
	a, err := br.ask(ctx, q)
	if a != nil && a.Gone {
		br.end(errors.New("its server has ended"))
		<-br.ended
	}
	return a, err
}

// gone reports whether br has ended.
func (br *bridge) gone() bool {
	select {
	case <-br.ended:
		return true
	default:
		return false
	}
}

// get returns the running bridge, or starts a fresh one.
func (s *server) get(ctx context.Context) (br *bridge, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, fmt.Errorf("the daemon is shutting down")
	}
	if s.bridge != nil && s.bridge.enter() {
		return s.bridge, false, nil
	}
	if s.bridge = nil; s.why != nil && time.Since(s.failed) < s.box.opts.FailedFor {
		return nil, false, fmt.Errorf("%w (it is started again after %v)", s.why, s.box.opts.FailedFor)
	}
	br, err = start(ctx, s)
	if err != nil && ctx.Err() != nil { // its client has left: that says nothing about the server
		return nil, false, err
	}
	if err != nil {
		s.failed, s.why = time.Now(), err
		s.box.opts.Log.Warn("an MCP server cannot be used", "server", s.setup.Name, "error", err)
		return nil, false, err
	}
	s.bridge, s.why = br, nil
	s.start(br)
	br.enter()
	return br, true, nil
}

// Close ends all bridges.
func (b *Box) Close() {
	for _, s := range b.servers {
		s.mu.Lock()
		s.closed = true
		if s.bridge != nil {
			s.bridge.end(fmt.Errorf("the daemon is shutting down"))
			<-s.bridge.ended
		}
		s.mu.Unlock()
	}
}
