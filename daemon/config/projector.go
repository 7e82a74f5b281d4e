package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// NoProjector is the value of --mmproj for a model that reads text alone.
const NoProjector = "off"

// Projector returns the file that makes embeddings of images; "" = the model reads text alone.
func (c *Config) Projector() string {
	if c.MMProj == NoProjector {
		return ""
	}
	return c.MMProj
}

// ProjectorOf is Projector of the model whose file is at path, which is not located yet.
func (c *Config) ProjectorOf(path string) string {
	if c.MMProj == "" {
		return projectorBeside(path)
	}
	return c.Projector()
}

// settleProjector looks for a projector beside the file of --model where no option names one, and makes room for images
// in requests. Of a model that is named otherwise, locateProjector finds it when the model is loaded.
func (c *Config) settleProjector() {
	if st, err := os.Stat(c.Model); c.MMProj == "" && err == nil && st.Mode().IsRegular() {
		c.MMProj, c.MMProjFound = projectorBeside(c.Model), true
	}
	if c.Projector() != "" && !c.Given("max-frame-bytes") {
		c.MaxFrameBytes = maxFrameBytesLimit
	}
}

// locateProjector finds the projector of a located model.
func (c *Config) locateProjector(log *slog.Logger) {
	if c.MMProj == "" && c.Model != "" {
		c.MMProj, c.MMProjFound = projectorBeside(c.Model), true
	}
	if c.MMProjFound && c.MMProj != "" {
		log.Info("projector of images", "file", c.MMProj, "from", "the model's folder; --mmproj off leaves it out")
	}
}

// projectorBeside returns the projector in the folder of a model, "" if there is none. A folder of several models has
// several: then the one with the longest beginning of its name in common with the model's is taken, if that is a word.
func projectorBeside(model string) string {
	names, err := filepath.Glob(filepath.Join(escapeGlob(filepath.Dir(model)), "*mmproj*.gguf"))
	if err != nil || len(names) == 0 || strings.Contains(filepath.Base(model), "mmproj") {
		return ""
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		st, err := os.Stat(name)
		return err != nil || !st.Mode().IsRegular()
	})
	models, _ := filepath.Glob(filepath.Join(escapeGlob(filepath.Dir(model)), "*.gguf"))
	best, most := "", -1
	for _, name := range names {
		n := agree(strings.ToLower(filepath.Base(model)), strings.NewReplacer("mmproj-", "", "mmproj_", "").Replace(
			strings.ToLower(filepath.Base(name))))
		if n > most {
			best, most = name, n
		}
	}
	if most < leastAgreed && len(models)-len(names) > 1 {
		return "" // it may be another model's
	}
	return best
}

// leastAgreed is the number of bytes at the beginning of two names from which on they name the same model.
const leastAgreed = 6

func agree(a, b string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
