package chat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/inspect"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// command is one /word.
type command struct {
	name, args, help string
	run              func(c *Chat, arg string) error
}

// commands in the order /help shows them. A function, because /help refers to the list.
func commands() []command {
	return []command{
		{"/set", "NAME VALUE", "change a setting; /set lists them, VALUE default resets one", (*Chat).cmdSet},
		{"/show", "[history]", "show the model and changed settings; history: the conversation", (*Chat).cmdShow},
		{"/clear", "", "clear the conversation, keep the settings", (*Chat).cmdClear},
		{"/save", "FILE", "save the conversation to a file", (*Chat).cmdSave},
		{"/load", "FILE", "load a saved conversation", (*Chat).cmdLoad},
		{"/why", "", "explain the daemon's decisions about the last answer: why it waited, why its thinking ended",
			(*Chat).cmdWhy},
		{"/stats", "", "show token counts and speed of this session", (*Chat).cmdStats},
		{"/help", "", "show this list; also /?", (*Chat).cmdHelp},
		{"/bye", "", "leave the chat; also Ctrl-D", func(*Chat, string) error { return errLeave }},
	}
}

var aliases = map[string]string{"/?": "/help", "/exit": "/bye", "/quit": "/bye"}

// command runs one /line.
func (c *Chat) command(line string) error {
	name, arg, _ := strings.Cut(line, " ")
	arg = strings.TrimSpace(arg)
	if full, ok := aliases[name]; ok {
		name = full
	}
	names := make([]string, 0, 8)
	for _, cmd := range commands() {
		if cmd.name == name {
			if cmd.args == "" && arg != "" {
				return fmt.Errorf("%s takes no argument", name)
			}
			return cmd.run(c, arg)
		}
		names = append(names, cmd.name)
	}
	if near := closest(name, names); near != "" {
		return fmt.Errorf("there is no command %s; did you mean %s? (Put a space before a message that begins with /.)",
			name, near)
	}
	return fmt.Errorf("there is no command %s; /? lists them (put a space before a message that begins with /)", name)
}

func (c *Chat) cmdSet(arg string) error {
	if arg == "" {
		var t ui.Table
		defaults := DefaultSettings()
		for _, s := range settings {
			value := ui.Sanitize(s.get(&c.settings))
			if value != s.get(&defaults) {
				value = c.cfg.Out.Bold(value)
			}
			t.Row(s.name, "%s", pad(value, s.get(&c.settings), 12)+"  "+c.cfg.Out.Dim(s.help))
		}
		return c.cfg.Out.Print(t.String(nil))
	}
	name, value, _ := strings.Cut(arg, " ")
	if value = strings.TrimSpace(value); value == "" {
		return fmt.Errorf("/set %s needs a value, or default", name)
	}
	if err := c.settings.Set(name, value); err != nil {
		return err
	}
	for _, s := range settings {
		if s.name == name {
			c.say(name + " is " + ui.Sanitize(s.get(&c.settings)))
		}
	}
	return nil
}

// pad fills styled, whose visible text is plain, to width columns.
func pad(styled, plain string, width int) string {
	return styled + strings.Repeat(" ", max(0, width-len([]rune(plain))))
}

func (c *Chat) cmdShow(arg string) error {
	out := c.cfg.Out
	switch arg {
	case "history":
		if len(c.messages) == 0 {
			c.say("The conversation is empty.")
			return nil
		}
		for _, m := range c.messages {
			who := m.Role
			if who == "user" {
				who = "you"
			}
			out.Print(out.Bold(who + ": "))
			if m.ReasoningContent != "" && !c.settings.HideThinking {
				out.DimText(m.ReasoningContent + "\n\n")
			}
			out.Text(m.Content)
			out.FreshLine()
		}
		return nil
	case "":
	default:
		return errors.New("write /show or /show history")
	}
	var t ui.Table
	if c.info != nil && c.info.Model != nil {
		m := c.info.Model
		t.Row("model", "%s", ui.Sanitize(m.Name))
		t.Row("", "%s", ui.Sanitize(m.Description))
		t.Row("context", "%s tokens", ui.Count(c.contextTokens()))
	}
	t.Row("conversation", "%s", plural(len(c.messages), "message"))
	if c.last != nil {
		t.Row("in context", "%s tokens", ui.Count(c.last.Usage.PromptTokens+c.last.Usage.CompletionTokens))
	}
	defaults := DefaultSettings()
	for _, s := range settings {
		if v := s.get(&c.settings); v != s.get(&defaults) {
			t.Row(s.name, "%s", ui.Sanitize(v))
		}
	}
	return out.Print(t.String(out.Dim))
}

func (c *Chat) cmdClear(string) error {
	c.messages, c.last = nil, nil
	c.say("The conversation is cleared; the settings are kept.")
	return nil
}

func (c *Chat) cmdSave(path string) error {
	if path == "" {
		return errors.New("/save needs a file name")
	}
	path = ExpandHome(path)
	model := ""
	if c.info != nil && c.info.Model != nil {
		model = c.info.Model.Name
	}
	if err := Save(path, model, c.settings.System, c.messages); err != nil {
		return err
	}
	c.say(fmt.Sprintf("saved %s to %s", plural(len(c.messages), "message"), ui.Sanitize(path)))
	return nil
}

func (c *Chat) cmdLoad(path string) error {
	if path == "" {
		return errors.New("/load needs a file name")
	}
	system, messages, err := Load(ExpandHome(path))
	if err != nil {
		return err
	}
	c.settings.System, c.messages, c.last = system, messages, nil
	c.say(fmt.Sprintf("loaded %s; /show history shows them", plural(len(messages), "message")))
	return nil
}

func (c *Chat) cmdStats(string) error {
	t := c.totals
	if t.answers == 0 {
		c.say("No answer yet.")
		return nil
	}
	var table ui.Table
	table.Row("answers", "%s", ui.Count(t.answers))
	table.Row("prompt tokens", "%s (%s cached)", ui.Count(t.prompt), ui.Count(t.cached))
	table.Row("answer tokens", "%s (%s thinking)", ui.Count(t.completion), ui.Count(t.think))
	if t.decodeSeconds > 0 {
		table.Row("speed", "%s tokens/s on average", ui.Rate(float64(t.decodeTokens)/t.decodeSeconds))
	}
	if e := c.last; e != nil {
		table.Row("last answer", "%s", EndText(e, c.contextTokens()))
		if thought := ThinkText(e); thought != "" {
			table.Row("", "%s", thought)
		}
		if e.Usage.CacheMiss != "" {
			table.Row("", "prompt cache: %s", ui.Sanitize(e.Usage.CacheMiss))
		}
		table.Row("", "queued %s, prompt %s, decoding %s", ui.Duration(e.Timings.Queue), ui.Duration(e.Timings.Prefill),
			ui.Duration(e.Timings.Decode))
	}
	return c.cfg.Out.Print(table.String(c.cfg.Out.Dim))
}

func (c *Chat) cmdWhy(string) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 10*time.Second,
		errors.New("the daemon did not answer within 10 s"))
	defer cancel()
	if err := c.connect(ctx); err != nil {
		return err
	}
	if c.lastID == "" {
		c.say("No answer yet.")
		return nil
	}
	// Ids come again, as each connection counts its own: the newest of this name is ours, unless another client asked
	// since under the same one.
	report, err := c.client.Why(ctx, wire.WhyQuestion{Request: c.lastID})
	if err != nil {
		return err
	}
	report.Requests = report.Requests[:min(len(report.Requests), 1)]
	return c.cfg.Out.Print(inspect.Why(c.cfg.Out, report))
}

func (c *Chat) cmdHelp(string) error {
	var t ui.Table
	for _, cmd := range commands() {
		t.Row(strings.TrimSpace(cmd.name+" "+cmd.args), "%s", cmd.help)
	}
	t.Gap()
	t.Row(`"""`, `begins and ends a message of several lines; Alt-Enter inserts a line break; pasted lines are one `+
		`message`)
	t.Row("Ctrl-C", "cancels the running answer")
	t.Row(`Ctrl-\`, "ends the thinking, so that the answer begins")
	t.Row("Ctrl-Z", "suspends the chat; fg resumes it")
	t.Row("Tab, ↑, Ctrl-R", "complete a word; earlier lines; search them")
	return c.cfg.Out.Print(t.String(nil))
}

// Complete gives the words that can complete the end of the line: commands, names and values of /set, files.
func Complete(line string) []string {
	if !strings.HasPrefix(line, "/") {
		return nil
	}
	words := strings.Split(line, " ")
	last := words[len(words)-1]
	var options []string
	switch {
	case len(words) == 1:
		for _, cmd := range commands() {
			options = append(options, cmd.name)
		}
	case words[0] == "/set" && len(words) == 2:
		for _, s := range settings {
			options = append(options, s.name)
		}
	case words[0] == "/set" && len(words) == 3:
		options = append(Words(words[1]), "default")
	case words[0] == "/show" && len(words) == 2:
		options = []string{"history"}
	case (words[0] == "/save" || words[0] == "/load") && len(words) == 2:
		options = files(last)
	}
	var fit []string
	for _, o := range options {
		if strings.HasPrefix(o, last) {
			fit = append(fit, o)
		}
	}
	return fit
}

// files returns the paths that begin with prefix, directories with a slash.
func files(prefix string) []string {
	dir, base := filepath.Split(prefix)
	entries, err := os.ReadDir(ExpandHome(orDot(dir)))
	if err != nil {
		return nil
	}
	var paths []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(base, ".") {
			continue
		}
		path := dir + e.Name()
		if e.IsDir() {
			path += "/"
		}
		paths = append(paths, path)
	}
	return paths
}

func orDot(dir string) string {
	if dir == "" {
		return "."
	}
	return dir
}
