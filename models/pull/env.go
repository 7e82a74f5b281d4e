package pull

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// FromEnv returns the part of a Config that the environment says, with the variables of huggingface_hub:
//
//	HF_ENDPOINT                     the hub's address, for mirrors
//	HF_TOKEN                        a token; else the first line of the file HF_TOKEN_PATH, $HF_HOME/token,
//	                                $XDG_CACHE_HOME/huggingface/token or ~/.cache/huggingface/token
//	UMA_OFFLINE, HF_HUB_OFFLINE     1, true, yes or on: no pull
//
// The error names a token file that cannot be read.
func FromEnv(getenv func(string) string) (Config, error) {
	cfg := Config{Endpoint: getenv("HF_ENDPOINT"), Offline: isTrue(getenv("UMA_OFFLINE")) ||
		isTrue(getenv("HF_HUB_OFFLINE"))}
	if cfg.Token = strings.TrimSpace(getenv("HF_TOKEN")); cfg.Token != "" {
		return cfg, nil
	}
	path, named := tokenPath(getenv)
	if path == "" {
		return cfg, nil
	}
	f, err := os.Open(path)
	switch {
	case os.IsNotExist(err) && !named:
		return cfg, nil
	case err != nil:
		return cfg, fmt.Errorf("the token file of HF_TOKEN_PATH or HF_HOME: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return cfg, err
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	cfg.Token = strings.TrimSpace(line)
	return cfg, nil
}

// tokenPath returns the file of the hub's token; named: the user named the file itself.
func tokenPath(getenv func(string) string) (path string, named bool) {
	if p := getenv("HF_TOKEN_PATH"); p != "" {
		return p, true
	}
	home := getenv("HOME")
	if h := getenv("HF_HOME"); h != "" {
		if rest, ok := strings.CutPrefix(h, "~/"); ok {
			h = filepath.Join(home, rest)
		}
		return filepath.Join(h, "token"), false
	}
	if c := getenv("XDG_CACHE_HOME"); filepath.IsAbs(c) {
		return filepath.Join(c, "huggingface", "token"), false
	}
	if filepath.IsAbs(home) {
		return filepath.Join(home, ".cache", "huggingface", "token"), false
	}
	return "", false
}

// isTrue reads a variable as huggingface_hub does.
func isTrue(text string) bool {
	switch strings.ToUpper(strings.TrimSpace(text)) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// endpoint parses the address of a server that the user configured.
func endpoint(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(text, "/"))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("HF_ENDPOINT is %.100q; it must be an address such as https://huggingface.co", text)
	}
	return u, nil
}
