package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
)

// Bridge is the main function of a bridge process: it reads package toolbox's lines from in, writes the answers to out,
// and ends with in. It confines the process before it starts the server.
func Bridge(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), setup.MaxLine)
	b := &bridge{out: out, running: map[uint64]context.CancelFunc{}}
	if !lines.Scan() {
		return errors.New("this is a part of uma-serve, which starts it; servers of tools are named in the " +
			"configuration file as [mcp.NAME]")
	}
	var start setup.Start
	if err := json.Unmarshal(lines.Bytes(), &start); err != nil {
		return fmt.Errorf("read the server's description: %w", err)
	}
	b.server = start.Server
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := b.connect(ctx, &start); err != nil {
		b.answer(&setup.Answer{Error: err.Error()})
		return err
	}
	defer b.session.Close()
	b.answer(&setup.Answer{})
	go func() { // without its server the bridge has nothing to do
		err := b.session.Wait()
		fmt.Fprintln(os.Stderr, "the server's connection has ended:", err)
		os.Exit(1)
	}()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	for lines.Scan() {
		var q setup.Question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return fmt.Errorf("read a question: %w", err)
		}
		if q.Kind == setup.Cancel {
			b.cancel(q.ID)
			continue
		}
		b.flood.asked()
		ctx, end := context.WithCancel(ctx)
		b.mu.Lock()
		b.running[q.ID] = end
		b.mu.Unlock()
		work.Go(func() {
			a := b.ask(ctx, &q)
			b.cancel(q.ID)
			a.ID = q.ID
			b.answer(a)
		})
	}
	return lines.Err()
}

// bridge is the process's state.
type bridge struct {
	server  setup.Server
	session *sdk.ClientSession
	flood   flood

	mu      sync.Mutex
	out     io.Writer
	running map[uint64]context.CancelFunc
}

// cancel ends a question's context.
func (b *bridge) cancel(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if end := b.running[id]; end != nil {
		end()
		delete(b.running, id)
	}
}

// answer writes a line. The daemon reads until it ends the process.
func (b *bridge) answer(a *setup.Answer) {
	line, err := json.Marshal(a)
	if err != nil {
		line, _ = json.Marshal(&setup.Answer{ID: a.ID, Error: "the answer cannot be written: " + err.Error()})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.out.Write(append(line, '\n')); err != nil {
		os.Exit(1) // the daemon has ended
	}
}

// connect confines the process, starts the server or finds it, and introduces itself to it.
func (b *bridge) connect(ctx context.Context, start *setup.Start) error {
	program, err := confine(start)
	if err != nil {
		return err
	}
	var transport sdk.Transport
	if b.server.URL != "" {
		transport = overURL(&b.server, &b.flood)
	} else if transport, err = run(program, &b.server, &b.flood); err != nil {
		return err
	}
	// A server gets no roots, no sampling and no questions to the user: it is asked, and asks nothing.
	c := sdk.NewClient(&sdk.Implementation{Name: "uma-serve", Version: buildinfo.Version},
		&sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}})
	b.flood.asked()
	if b.session, err = c.Connect(ctx, transport, nil); err != nil {
		return fmt.Errorf("the server does not introduce itself: %w", err)
	}
	return nil
}

// ask answers a question.
func (b *bridge) ask(ctx context.Context, q *setup.Question) *setup.Answer {
	switch q.Kind {
	case setup.List:
		tools, err := b.list(ctx)
		if err != nil {
			return b.failed(err)
		}
		return &setup.Answer{Tools: tools}
	case setup.Call:
		r, err := b.call(ctx, q)
		if err != nil {
			return b.failed(err)
		}
		return &setup.Answer{Result: r}
	}
	return &setup.Answer{Error: fmt.Sprintf("there is no question %q", q.Kind)}
}

// failed returns the answer to a question that the server did not answer.
func (b *bridge) failed(err error) *setup.Answer {
	return &setup.Answer{Error: err.Error(), Gone: errors.Is(err, sdk.ErrConnectionClosed)}
}

// list returns the server's tools, page after page.
func (b *bridge) list(ctx context.Context) ([]setup.Tool, error) {
	tools, cursor, seen := []setup.Tool{}, "", map[string]bool{}
	for page := 0; ; page++ {
		if page == setup.MaxPages {
			return nil, fmt.Errorf("its list of tools has more than %d pages", setup.MaxPages)
		}
		got, err := b.session.ListTools(ctx, &sdk.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, fmt.Errorf("list its tools: %w", err)
		}
		for _, t := range got.Tools {
			if t == nil {
				return nil, errors.New("its list of tools has a null")
			}
			schema, err := json.Marshal(t.InputSchema)
			if err != nil {
				return nil, fmt.Errorf("the schema of tool %.80q: %w", t.Name, err)
			}
			if string(schema) == "null" {
				schema = []byte(`{"type":"object"}`)
			}
			tools = append(tools, setup.Tool{Name: t.Name, Description: t.Description, Schema: schema})
		}
		if err := setup.CheckTools(tools); err != nil {
			return nil, err
		}
		if cursor = got.NextCursor; cursor == "" {
			return tools, nil
		}
		if seen[cursor] {
			return nil, errors.New("its list of tools comes back to an earlier page")
		}
		seen[cursor] = true
	}
}

// call calls a tool.
func (b *bridge) call(ctx context.Context, q *setup.Question) (*setup.Result, error) {
	got, err := b.session.CallTool(ctx, &sdk.CallToolParams{Name: q.Name, Arguments: q.Arguments})
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", q.Name, err)
	}
	return &setup.Result{Text: setup.Cut(textOf(got)), Failed: got.IsError}, nil
}

// textOf returns the text of a result. What is no text is named in its place.
func textOf(r *sdk.CallToolResult) string {
	var out []byte
	part := func(text string) {
		if len(out) > 0 {
			out = append(out, '\n')
		}
		out = append(out, text...)
	}
	for _, c := range r.Content {
		switch c := c.(type) {
		case *sdk.TextContent:
			part(c.Text)
		case *sdk.ImageContent:
			part(fmt.Sprintf("[an image of %d bytes was left out]", len(c.Data)))
		case *sdk.AudioContent:
			part(fmt.Sprintf("[audio of %d bytes was left out]", len(c.Data)))
		case *sdk.ResourceLink:
			part("[resource " + c.URI + "]")
		case *sdk.EmbeddedResource:
			if c.Resource != nil && c.Resource.Text != "" {
				part(c.Resource.Text)
			} else {
				part("[an embedded resource was left out]")
			}
		default:
			part("[a part of another type was left out]")
		}
	}
	if len(out) == 0 && r.StructuredContent != nil {
		b, err := json.Marshal(r.StructuredContent)
		if err == nil {
			out = b
		}
	}
	return string(out)
}
