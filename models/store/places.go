package store

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// root is a folder to look into, and how its program lays models out.
type root struct {
	place Place
	path  string
	find  func(*scan)
}

// systemDir is the models directory of the system's daemon.
const systemDir = "/var/lib/uma-serve/models"

// DefaultDir returns the models directory without a configured one: uma-serve/models below $XDG_DATA_HOME or
// ~/.local/share; for root, and for a user without a home, the system's.
func DefaultDir(getenv func(string) string) string {
	if d := getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "uma-serve", "models")
	}
	if h := getenv("HOME"); filepath.IsAbs(h) && h != "/" && os.Getuid() != 0 {
		return filepath.Join(h, ".local", "share", "uma-serve", "models")
	}
	return systemDir
}

// roots returns the folders of all places. They follow the other programs:
//
//   - Hugging Face: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub,
//     ~/.cache/huggingface/hub (huggingface_hub/constants.py)
//   - llama.cpp: LLAMA_CACHE, else llama.cpp below $XDG_CACHE_HOME, ~/.cache, on macOS ~/Library/Caches (common.cpp,
//     fs_get_cache_directory); since 2026 it uses Hugging Face's cache, and keeps LLAMA_CACHE in the same layout
//     (hf-cache.cpp)
//   - LM Studio: the folder in ~/.lmstudio-home-pointer, else ~/.cache/lm-studio or ~/.lmstudio; in it downloadsFolder
//     of settings.json, else models (lmstudio.js findLMStudioHome, lms modelsFolder.ts)
//   - ollama: OLLAMA_MODELS, else ~/.ollama/models (envconfig); and its Linux service's home /usr/share/ollama
func (s *Store) roots() []root {
	home := s.getenv("HOME")
	if !filepath.IsAbs(home) {
		home = ""
	}
	below := func(parts ...string) string {
		if home == "" {
			return ""
		}
		return filepath.Join(append([]string{home}, parts...)...)
	}
	cache := s.getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(cache) {
		cache = below(".cache")
	}
	inCache := func(base string, parts ...string) string {
		if base == "" {
			return ""
		}
		return filepath.Join(append([]string{base}, parts...)...)
	}
	expand := func(path string) string {
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			return below(rest)
		}
		return path
	}

	hub := inCache(cache, "huggingface", "hub")
	if h := expand(s.getenv("HF_HOME")); h != "" {
		hub = filepath.Join(h, "hub")
	}
	for _, name := range []string{"HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"} { // the latter wins
		if h := expand(s.getenv(name)); h != "" {
			hub = h
		}
	}
	llama := s.getenv("LLAMA_CACHE")
	if llama == "" && runtime.GOOS == "darwin" {
		llama = below("Library", "Caches", "llama.cpp")
	} else if llama == "" {
		llama = inCache(cache, "llama.cpp")
	}
	ollama := s.getenv("OLLAMA_MODELS")
	if ollama == "" {
		ollama = below(".ollama", "models")
	}
	all := []root{
		{Own, s.dir, findOwn},
		{Hub, hub, findHub},
		{LlamaCpp, llama, findLlamaCpp},
		{LMStudio, lmStudioModels(below), findLMStudio},
		{InOllama, ollama, findOllama},
		{InOllama, "/usr/share/ollama/.ollama/models", findOllama},
	}
	var out []root
	for _, r := range all {
		if r.path == "" {
			continue
		}
		if abs, err := filepath.Abs(r.path); err == nil {
			r.path = abs
		}
		if !contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// contains reports whether the same place has the same folder already, by whatever links.
func contains(roots []root, r root) bool {
	st, err := os.Stat(r.path)
	for _, o := range roots {
		if o.path == r.path && o.place == r.place {
			return true
		}
		if other, oerr := os.Stat(o.path); err == nil && oerr == nil && o.place == r.place && os.SameFile(st, other) {
			return true
		}
	}
	return false
}

// lmStudioModels returns the folder that LM Studio keeps models in, "" without a home.
func lmStudioModels(below func(...string) string) string {
	if below() == "" {
		return ""
	}
	base := below(".lmstudio")
	pointer, err := readSmall(below(".lmstudio-home-pointer"), 4<<10)
	if path := strings.TrimSpace(string(pointer)); err == nil && filepath.IsAbs(path) {
		base = path
	} else if st, err := os.Stat(below(".cache", "lm-studio")); err == nil && st.IsDir() {
		base = below(".cache", "lm-studio")
	}
	var settings struct {
		DownloadsFolder string `json:"downloadsFolder"`
	}
	text, err := readSmall(filepath.Join(base, "settings.json"), maxSmall)
	if err == nil && json.Unmarshal(text, &settings) == nil && filepath.IsAbs(settings.DownloadsFolder) {
		return settings.DownloadsFolder
	}
	return filepath.Join(base, "models")
}
