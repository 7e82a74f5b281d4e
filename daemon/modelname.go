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

// Locate replaces names in --model and --draft-model, and --hf-repo, by the paths of their files.
func (c *Config) Locate(ctx context.Context, log *slog.Logger) error {
	if err := c.locateModel(ctx, log); err != nil {
		return err
	}
	return c.locateDraft(ctx, log)
}

// locateModel replaces a name in --model by the path of the file that it stands for, and --hf-repo by that of its file.
// A --hf-repo that no place on this machine has stays: the model is downloaded when it is loaded. Paths, and no model
// at all, stay as they are.
func (c *Config) locateModel(ctx context.Context, log *slog.Logger) error {
	if c.HFRepo == "" && (c.Model == "" || store.IsPath(c.Model)) {
		return nil
	}
	st, err := os.Stat(c.Model)
	if c.Model != "" && err == nil && !st.IsDir() {
		return nil
	}
	catalog, serr := store.New(c.ModelsDir, nil).Scan(ctx)
	if serr != nil {
		return serr
	}
	m, nerr := c.find(catalog)
	switch {
	case m != nil:
		if nerr = m.Whole(); nerr == nil {
			log.Info("model", "name", m.ID(), "from", string(m.Place), "file", m.Path())
			c.Model, c.HFRepo = m.Path(), ""
		}
		return nerr
	case c.HFRepo != "" && !errors.Is(nerr, store.ErrUnknown):
		return fmt.Errorf("--hf-repo: %w", nerr)
	case c.HFRepo != "":
		return c.mayDownload()
	// A text that is no name, a folder, and the name of a file are paths; what is wrong with them, their reader says.
	case err == nil, errors.Is(nerr, store.ErrName), strings.HasSuffix(strings.ToLower(c.Model), ".gguf"):
		return nil
	case errors.Is(nerr, store.ErrUnknown):
		return fmt.Errorf("%w; uma-cli models lists what there is, uma-cli pull downloads a model", nerr)
	}
	return nerr
}

// find looks the model up; one of --hf-repo that is not whole counts as none, for it is downloaded.
func (c *Config) find(catalog *store.Catalog) (*store.Model, error) {
	if c.HFRepo == "" {
		return catalog.Resolve(c.Model)
	}
	name, err := c.hubName()
	if err != nil {
		return nil, err
	}
	m, err := catalog.Lookup(name.String())
	if err == nil && m.Incomplete != "" {
		return nil, store.ErrUnknown
	}
	return m, err
}

// mayDownload returns the reason why the model of --hf-repo cannot be downloaded, nil if it can.
func (c *Config) mayDownload() error {
	switch {
	case c.Offline:
		return fmt.Errorf("--offline: %s is not on this machine, whole; "+
			"start without --offline, or uma-cli pull hf.co/%s", c.HFRepo, c.HFRepo)
	case c.Puller == nil:
		return fmt.Errorf("%s is not on this machine, whole; uma-cli pull hf.co/%s downloads it", c.HFRepo, c.HFRepo)
	}
	return nil
}

// download downloads the model of --hf-repo and returns its file.
func (c *Config) download(ctx context.Context, log *slog.Logger) (string, error) {
	name, err := c.hubName()
	if err == nil {
		err = c.mayDownload()
	}
	if err != nil {
		return "", err
	}
	dir := store.New(c.ModelsDir, nil).Dir()
	log.Info("downloading the model", "name", name.String(), "to", dir)
	path, err := c.Puller.Pull(ctx, name, dir)
	if err != nil {
		return "", fmt.Errorf("download %s: %w", name, err)
	}
	return path, nil
}
