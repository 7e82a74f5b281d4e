package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/uma-serve/uma-serve/models/store"
)

// hubName is --hf-repo as a name.
func (c *Config) hubName() (store.Name, error) {
	n, err := store.ParseName(c.HFRepo)
	if err == nil && n.Host == "" {
		n, err = store.ParseName(store.HuggingFace + "/" + c.HFRepo)
	}
	if err == nil && n.Host != store.HuggingFace {
		err = fmt.Errorf("%q is a model of %s; it must be ORG/REPO[:QUANT] of Hugging Face", c.HFRepo, n.Host)
	}
	return n, err
}

// modelFile is the file of the model to serve: the one that --model is the path of, else the one that its name stands for,
// or that of --hf-repo, which is downloaded unless it is on disk. "" = none is named.
func (c *Config) modelFile(ctx context.Context, log *slog.Logger) (string, error) {
	switch {
	case c.HFRepo != "":
		return c.hubFile(ctx, log)
	case c.Model == "" || store.IsPath(c.Model):
		return c.Model, nil
	}
	st, err := os.Stat(c.Model)
	if err == nil && !st.IsDir() {
		return c.Model, nil
	}
	catalog, serr := store.New(c.ModelsDir, nil).Scan(ctx)
	if serr != nil {
		return "", serr
	}
	m, nerr := catalog.Resolve(c.Model)
	if m != nil {
		return use(m, log)
	}
	// A text that is no name, a folder, and the name of a file are paths; what is wrong with them, their reader says.
	if err == nil || errors.Is(nerr, store.ErrName) || strings.HasSuffix(strings.ToLower(c.Model), ".gguf") {
		return c.Model, nil
	}
	if errors.Is(nerr, store.ErrUnknown) {
		return "", fmt.Errorf("%w; uma-cli models lists what there is, uma-cli pull downloads a model", nerr)
	}
	return "", nerr
}

// use is the file of a model that was found.
func use(m *store.Model, log *slog.Logger) (string, error) {
	if err := m.Whole(); err != nil {
		return "", err
	}
	log.Info("model", "name", m.ID(), "from", string(m.Place), "file", m.Path())
	return m.Path(), nil
}

// hubFile is the file of --hf-repo.
func (c *Config) hubFile(ctx context.Context, log *slog.Logger) (string, error) {
	name, err := c.hubName()
	if err != nil {
		return "", fmt.Errorf("--hf-repo: %w", err)
	}
	models := store.New(c.ModelsDir, nil)
	catalog, err := models.Scan(ctx)
	if err != nil {
		return "", err
	}
	m, err := catalog.Lookup(name.String())
	switch {
	case err == nil && m.Incomplete == "":
		return use(m, log)
	case err != nil && !errors.Is(err, store.ErrUnknown):
		return "", err
	case c.Offline:
		return "", fmt.Errorf("--offline: %s is not on this machine, whole; start without --offline, or uma-cli pull %s", name, name)
	case c.Puller == nil:
		return "", fmt.Errorf("%s is not on this machine, whole; uma-cli pull %s downloads it", name, name)
	}
	log.Info("downloading the model", "name", name.String(), "to", models.Dir())
	path, err := c.Puller.Pull(ctx, name, models.Dir())
	if err != nil {
		return "", fmt.Errorf("download %s: %w", name, err)
	}
	return path, nil
}
