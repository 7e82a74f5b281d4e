package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/uma-serve/uma-serve/internal/logq"
	"github.com/uma-serve/uma-serve/models"
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
	if err := c.locateDraft(ctx, log); err != nil {
		return err
	}
	c.locateProjector(log)
	return nil
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

// locateDraft replaces a name in --draft-model by the path of the file that it stands for.
func (c *Config) locateDraft(ctx context.Context, log *slog.Logger) error {
	if c.DraftModel == "" || store.IsPath(c.DraftModel) {
		return nil
	}
	st, err := os.Stat(c.DraftModel)
	if err == nil && !st.IsDir() {
		return nil
	}
	catalog, err := store.New(c.ModelsDir, nil).Scan(ctx)
	if err != nil {
		return err
	}
	m, err := catalog.Resolve(c.DraftModel)
	if err == nil {
		err = m.Whole()
	}
	switch {
	case err == nil:
		log.Info("draft model", "name", m.ID(), "from", string(m.Place), "file", m.Path())
		c.DraftModel = m.Path()
		return nil
	case errors.Is(err, store.ErrName), strings.HasSuffix(strings.ToLower(c.DraftModel), ".gguf"):
		return nil // a path: opening the file reports any error
	}
	return fmt.Errorf("--draft-model: %w; uma-cli models lists what there is, uma-cli pull downloads a model", err)
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

// ModelFile returns the model's file after Locate: that of --model, that of --hf-repo, which it downloads, or the
// built-in model's.
func (c *Config) ModelFile(ctx context.Context, log *slog.Logger) (path string, err error) {
	switch {
	case c.HFRepo != "":
		return c.download(ctx, log)
	case c.Model != "":
		return c.Model, nil
	}
	if path, err = models.Default(); err == nil {
		fmt.Fprintln(logq.Writer(log), "uma-serve:", models.Notice)
	}
	return path, err
}

// AbsoluteModels makes paths of files absolute, for a process with another working directory.
func (c *Config) AbsoluteModels() (err error) {
	if c.Model, err = filepath.Abs(c.Model); err == nil && c.DraftModel != "" {
		c.DraftModel, err = filepath.Abs(c.DraftModel)
	}
	if err == nil && c.Projector() != "" {
		c.MMProj, err = filepath.Abs(c.MMProj)
	}
	if err == nil {
		err = c.absoluteLoRA()
	}
	return err
}
