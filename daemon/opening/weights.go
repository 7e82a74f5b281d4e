package opening

import (
	"log/slog"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/internal/host/hugefile"
	"github.com/uma-serve/uma-serve/runtime"
)

// readShare is the part of a load's progress bar for reading the files; the rest is the engine's, which then maps what
// is in memory.
const readShare = 0.9

// ReadWeights reads the files of the model at path, in huge pages where the machine has them, before the engine maps
// them: each step reads them all. It returns the function that receives the engine's progress. It does nothing where
// the weights are copied or go to a device.
func ReadWeights(c *config.Config, path string, progress runtime.Progress, log *slog.Logger) runtime.Progress {
	if c.NoMMap || c.OnDevice() {
		return progress
	}
	began := time.Now()
	files, read, going := ModelFiles(path), false, true
	var all hugefile.Pages
	for i, file := range files {
		p, err := hugefile.Read(file, hostmem.Read().Available, hugefile.Options{
			Limit: hugefile.Limit - time.Since(began),
			Progress: func(share float32) bool {
				read, going = true, progress(readShare*(float32(i)+share)/float32(len(files)))
				return going
			},
		})
		if err != nil {
			log.Debug("the pages of the weights stay as they are", "file", file, "error", err)
		}
		if err != nil || !going {
			return progress
		}
		all.File, all.Huge, all.Again = all.File+p.File, all.Huge+p.Huge, all.Again+p.Again
	}
	if !read {
		return progress
	}
	log.Info("weights", "bytes", all.File, "in_huge_pages", all.Huge, "read_again", all.Again,
		"took", time.Since(began).Round(time.Millisecond))
	return func(share float32) bool { return progress(readShare + (1-readShare)*share) }
}
