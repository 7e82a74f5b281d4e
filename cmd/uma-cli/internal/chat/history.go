package chat

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
)

const (
	maxHistory = 1000 // lines that the history file keeps
	// bytes of a line that goes to the file; a longer one, a pasted file, is remembered until the end
	maxEntry = 64 << 10
)

// History is the lines typed in earlier chats, newest last, one JSON string a line in the file: an entry may itself
// have several lines. It is a lineedit.History.
type History struct {
	path    string // "" = memory only
	entries []string
}

// HistoryPath returns the path of the chat's history: $XDG_STATE_HOME/uma-serve/history, by default under
// ~/.local/state. It is "" (no file) when UMA_NOHISTORY is set or there is no home.
func HistoryPath(getenv func(string) string) string {
	if v := getenv("UMA_NOHISTORY"); v != "" && v != "0" && v != "false" {
		return ""
	}
	// The XDG specification: a relative path is invalid and to be ignored.
	dir := getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		home := getenv("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "uma-serve", "history")
}

// OpenHistory reads the history file. A damaged line is left out, and an unreadable file gives an empty
// history; neither is an error.
func OpenHistory(path string) *History {
	h := &History{path: path}
	if path == "" {
		return h
	}
	f, err := os.Open(path)
	if err != nil {
		return h
	}
	defer f.Close()
	lines, total := bufio.NewReader(io.LimitReader(f, maxFileBytes)), 0
	for {
		line, err := lines.ReadBytes('\n')
		var s string
		if json.Unmarshal(line, &s) == nil && s != "" {
			h.entries = append(h.entries, s)
		}
		if err != nil {
			break
		}
		total++
	}
	if total > 2*maxHistory {
		h.entries = h.entries[max(0, len(h.entries)-maxHistory):]
		h.compact()
	}
	return h
}

// compact rewrites the file with the entries in memory.
func (h *History) compact() {
	var data []byte
	for _, e := range h.entries {
		data = append(appendJSON(data, e), '\n')
	}
	_ = writeFile(h.path, data)
}

// appendJSON appends s as a JSON string.
func appendJSON(dst []byte, s string) []byte {
	b, _ := json.Marshal(s) // a string always marshals
	return append(dst, b...)
}

// Write adds a line and appends it to the file, which only its owner can read. A line equal to the one before it is
// not repeated.
func (h *History) Write(s string) (int, error) {
	if s == "" || len(h.entries) > 0 && h.entries[len(h.entries)-1] == s {
		return len(h.entries), nil
	}
	h.entries = append(h.entries, s)
	if h.path == "" || len(s) > maxEntry {
		return len(h.entries), nil
	}
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return len(h.entries), err
	}
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return len(h.entries), err
	}
	defer f.Close()
	_, err = f.Write(append(appendJSON(nil, s), '\n'))
	return len(h.entries), err
}

// GetLine is entry i, 0 the oldest.
func (h *History) GetLine(i int) (string, error) {
	if i < 0 || i >= len(h.entries) {
		return "", errors.New("history: no such line")
	}
	return h.entries[i], nil
}

// Len returns the number of entries.
func (h *History) Len() int { return len(h.entries) }
