package llama

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/uma-serve/uma-serve/client"
)

// state is the content of a file of SaveState. The KV cells stay with the daemon: text finds them there.
type state struct {
	Format string `json:"format"` // stateFormat
	Model  string `json:"model"`
	Text   string `json:"text"`
}

const (
	stateFormat = "uma-serve gollama state 1"
	// maxState bounds a file of SaveState: the daemon's limit of a request (--max-frame) is 16 MiB, escaped at worst
	// sixfold.
	maxState = 96 << 20
)

// SaveState notes in the file dst the text of the newest Predict or Eval, its answer included, and has the daemon write
// what it has cached to its disk tier (--cache-dir), where there is one.
func (l *LLama) SaveState(dst string) error {
	l.mu.Lock()
	s := state{stateFormat, l.info.Model.Name, l.newest}
	l.mu.Unlock()
	if s.Text == "" {
		return errors.New("there is no state to save: call Predict or Eval first")
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := l.save(); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(dst), ".uma-state-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), dst)
}

// save has the daemon write its cached prefixes. A daemon without a disk tier keeps them in memory.
func (l *LLama) save() error {
	_, err := l.c.KVDo(context.Background(), "save", "all")
	if refused, ok := errors.AsType[*client.ServerError](err); ok && refused.Code == client.BadRequest {
		return nil
	}
	return err
}

// LoadState has the daemon take back, or compute, the text that a file of SaveState names. A Predict that begins with
// this text then starts at once. The file must be of the same model.
func (l *LLama) LoadState(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err != nil {
		return err
	}
	var s state
	if len(b) > maxState || json.Unmarshal(b, &s) != nil || s.Format != stateFormat || s.Text == "" {
		return fmt.Errorf("%s is not a file of SaveState", file)
	}
	if s.Model != l.info.Model.Name {
		return fmt.Errorf("%s is a state of the model %q; the daemon serves %q", file, s.Model, l.info.Model.Name)
	}
	r := client.NewRequest()
	r.Prompt, r.ParseSpecial = s.Text, true
	return l.fill(r)
}
