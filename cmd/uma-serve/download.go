package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/models/pull"
	"github.com/uma-serve/uma-serve/models/store"
)

// Pauses between two reports of a download.
const (
	logPause    = 10 * time.Second
	statusPause = 2 * time.Second // systemd logs each
)

// downloads downloads the model of --hf-repo, and tells the log and systemd how far it is.
type downloads struct {
	log       *slog.Logger
	textAlone bool // --mmproj off
}

// Pull is store.Puller's.
func (d downloads) Pull(ctx context.Context, name store.Name, dir string) (string, error) {
	cfg, err := pull.FromEnv(os.Getenv)
	if err != nil {
		return "", err
	}
	memory := hostmem.Read()
	cfg.Agent, cfg.Memory = "uma-serve/"+buildinfo.Version, cmp.Or(memory.Available, memory.Total)
	cfg.TextAlone = d.textAlone
	var logged, told time.Time
	cfg.Observer = pull.Observer{
		Chosen: func(c pull.Choice) {
			d.log.Info("model", "name", c.Name, "bytes", c.Bytes, "files", len(c.Files), "why", c.Why)
		},
		Note: func(text string) { d.log.Info("download: " + text) },
		Progress: func(p pull.Progress) {
			now := time.Now()
			if now.Sub(logged) >= logPause || p.Done == p.Total {
				logged = now
				d.log.Info("downloading", "file", p.File, "number", p.Number, "of", p.Of, "done_bytes", p.Done,
					"total_bytes", p.Total)
			}
			if now.Sub(told) >= statusPause {
				told = now
				sd.SdNotify(false, fmt.Sprintf("STATUS=downloading %s: %d%%\nEXTEND_TIMEOUT_USEC=%d", p.File,
					p.Done*100/max(p.Total, 1),
					(2*time.Minute).Microseconds()))
			}
		},
	}
	p, err := pull.New(cfg)
	if err != nil {
		return "", err
	}
	m, err := p.Pull(ctx, name.String(), dir)
	if err != nil {
		return "", err
	}
	return m.Files[0], nil
}
