package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Limits of a conversation file. They are far above a model's context: a larger file is not a conversation.
const (
	maxFileBytes = 64 << 20
	maxMessages  = 100_000
)

// fileFormat is the "format" of a saved conversation; the number changes when old readers must refuse a new file.
const fileFormat = "uma-serve conversation 1"

// savedConversation is the file format of /save. Unknown fields are ignored on reading, so that later versions may add
// some.
type savedConversation struct {
	Format   string         `json:"format"`
	Model    string         `json:"model,omitempty"`
	System   string         `json:"system,omitempty"`
	Messages []savedMessage `json:"messages"`
}

type savedMessage struct {
	Role             string `json:"role"`
	Content          string `json:"content"`
	ReasoningContent string `json:"reasoning_content,omitempty"`
}

// Save writes the conversation to path as JSON: to a temporary file beside it that is synced and renamed, so that
// a crash leaves the old file or the new one. A file that is there already is only replaced when it is itself a
// saved conversation.
func Save(path, model, system string, messages []wire.Message) (err error) {
	if st, err := os.Stat(path); err == nil {
		if st.IsDir() {
			return fmt.Errorf("save: %s is a directory; name a file in it", path)
		}
		if _, _, err := Load(path); err != nil {
			return fmt.Errorf("save: %s exists and is not a saved conversation; choose another name", path)
		}
	}
	file := savedConversation{Format: fileFormat, Model: model, System: system, Messages: []savedMessage{}}
	for _, m := range messages {
		file.Messages = append(file.Messages, savedMessage{m.Role, m.Content, m.ReasoningContent})
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(file); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	if buf.Len() > maxFileBytes {
		return fmt.Errorf("save: the conversation has %d bytes, more than the %d that /load reads", buf.Len(),
			maxFileBytes)
	}
	return writeFile(path, buf.Bytes())
}

// writeFile replaces path by data, readable for its owner only.
func writeFile(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // 0600
	if err != nil {
		return fmt.Errorf("save: %w", clierr.File(path, err)) // the temporary name means nothing to a user
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("save: %w", clierr.File(path, err))
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Load reads a file that Save wrote, and checks all of it before it returns anything.
func Load(path string) (system string, messages []wire.Message, err error) {
	fail := func(format string, a ...any) (string, []wire.Message, error) {
		return "", nil, fmt.Errorf("load %s: "+format, append([]any{path}, a...)...)
	}
	// Reading a named pipe or a device might block or never end.
	st, err := os.Stat(path)
	if err != nil {
		return "", nil, fmt.Errorf("load %w", clierr.File(path, err))
	}
	if kind := clierr.Kind(st.Mode()); kind != "" {
		return fail("it is %s, not a file", kind)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", nil, fmt.Errorf("load %w", clierr.File(path, err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return "", nil, fmt.Errorf("load %w", clierr.File(path, err))
	}
	if len(data) > maxFileBytes {
		return fail("larger than %d MiB, the limit of a conversation", maxFileBytes>>20)
	}
	system, messages, err = parseConversation(data)
	if err != nil {
		return fail("%w", err)
	}
	return system, messages, nil
}

// parseConversation decodes and checks the bytes of a conversation file.
func parseConversation(data []byte) (string, []wire.Message, error) {
	if !utf8.Valid(data) {
		return "", nil, errors.New("not valid UTF-8")
	}
	var file savedConversation
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&file); err != nil {
		return "", nil, errors.New("not a saved conversation: " + jsonText(err))
	}
	if _, err := dec.Token(); err != io.EOF {
		return "", nil, errors.New("not a saved conversation: data after its end")
	}
	if file.Format != fileFormat {
		return "", nil, fmt.Errorf("not a saved conversation: format is %.60q, not %q", file.Format, fileFormat)
	}
	if len(file.Messages) > maxMessages {
		return "", nil, fmt.Errorf("messages: %d, more than the limit of %d", len(file.Messages), maxMessages)
	}
	if strings.ContainsRune(file.System, 0) {
		return "", nil, errors.New("system: holds a NUL byte")
	}
	messages := make([]wire.Message, 0, len(file.Messages))
	for i, m := range file.Messages {
		switch m.Role {
		case "system", "user", "assistant", "tool":
		default:
			return "", nil, fmt.Errorf("messages[%d].role: %.60q is not system, user, assistant or tool", i, m.Role)
		}
		if strings.ContainsRune(m.Content, 0) || strings.ContainsRune(m.ReasoningContent, 0) {
			return "", nil, fmt.Errorf("messages[%d]: holds a NUL byte", i)
		}
		messages = append(messages,
			wire.Message{Role: m.Role, Content: m.Content, ReasoningContent: m.ReasoningContent})
	}
	return file.System, messages, nil
}

// jsonText describes a JSON error and its place.
func jsonText(err error) string {
	var syntax *json.SyntaxError
	var field *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("it is not JSON from byte %d on", syntax.Offset)
	case errors.As(err, &field) && field.Field != "":
		return fmt.Sprintf("%s has a wrong type", field.Field)
	case errors.Is(err, io.EOF):
		return "it is empty"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it ends in the middle"
	}
	return "it is not a JSON object"
}

// ExpandHome replaces a leading "~/" by the home directory, as a shell would have done.
func ExpandHome(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}
