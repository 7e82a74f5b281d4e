package main

import (
	"strings"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// listener is a daemon that remembers what it was asked.
type listener struct {
	mu    sync.Mutex
	asked []string
}

func (l *listener) answer(c *clienttest.Conn, r *clienttest.Request) {
	l.mu.Lock()
	l.asked = append(l.asked, r.Messages[len(r.Messages)-1].Content)
	l.mu.Unlock()
	c.Token(r.ID, "heard", wire.Output)
	c.EOS(wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: true,
		Usage: wire.Usage{PromptTokens: 1, CompletionTokens: 1}})
}

// last is the newest message.
func (l *listener) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.asked) == 0 {
		return ""
	}
	return l.asked[len(l.asked)-1]
}

// languages are texts of many scripts, each with something that a line editor can lose.
var languages = map[string]string{
	"German":  "Größe, Übermut, ähnlich, Straße",
	"French":  "Où est l'été ? Ça va être agréable, garçon œuf",
	"Spanish": "¿Qué año? El niño comió piñas",
	"every Latin-1 letter": "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿ " +
		"¡¢£¤¥¦§¨©ª«¬®¯°±²³´µ¶·¸¹º»¼½¾¿",
	"Polish, Czech, Turkish":    "Zażółć gęślą jaźń. Příliš žluťoučký kůň. İstanbul'da ığdır",
	"Vietnamese":                "Tiếng Việt có nhiều dấu thanh",
	"Greek and Cyrillic":        "Καλημέρα κόσμε. Съешь ещё этих мягких булок",
	"Chinese, Japanese, Korean": "你好，世界。こんにちは、カタカナ。안녕하세요",
	"combining marks":           "e\u0301 n\u0303 u\u0308 a\u0328\u0301 Z\u0361 decomposed",
	"emoji":                     "🙂 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 ❤️ 1️⃣ end",
	"Arabic and Hebrew":         "مرحبا بالعالم ١٢٣ שָׁלוֹם עוֹלָם",
	"Devanagari, Thai, Tamil":   "नमस्ते क्षत्रिय สวัสดีครับ น้ำ தமிழ் நிக்ஷ",
	"outside the BMP":           "𝒜𝓁𝓅𝒽𝒶 𠮷野家 𐍈",
}

// TestChatInAnyLanguage: whatever language is typed or pasted, the model gets the very text.
func TestChatInAnyLanguage(t *testing.T) {
	for way, send := range map[string]func(c *console, text string){
		"typed": func(c *console, text string) {
			for _, r := range text {
				c.typeKeys(string(r))
			}
		},
		"typed, byte by byte": func(c *console, text string) {
			for i := range len(text) {
				c.typeKeys(text[i : i+1])
			}
		},
		"pasted":                   func(c *console, text string) { c.typeKeys("\x1b[200~" + text + "\x1b[201~") },
		"pasted, without brackets": func(c *console, text string) { c.typeKeys(text) },
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			var l listener
			server := (&clienttest.Server{Answer: l.answer}).Start(t)
			c := openConsole(t, program(t, server.Path))
			c.expect(">>> ")
			for name, text := range languages {
				send(c, text)
				c.typeKeys("\r")
				c.expect("heard")
				c.expect(">>> ")
				if got := l.last(); got != text {
					t.Errorf("%s: %q was sent, the model got %q", name, text, got)
				}
			}
			c.typeKeys("\x04")
			if code := c.exit(); code != 0 {
				t.Errorf("exit status %d", code)
			}
		})
	}
}

// TestLongPaste: a text far taller than the window arrives whole, with brackets and without, and soon.
func TestLongPaste(t *testing.T) {
	var l listener
	server := (&clienttest.Server{Answer: l.answer}).Start(t)
	c := openConsole(t, program(t, server.Path))
	c.expect(">>> ")
	lines := strings.Repeat("\tfunc größe() { return \"世界 🙂\" }\n", 5000)
	c.typeKeys("\x1b[200~" + strings.ReplaceAll(lines, "\n", "\r") + "\x1b[201~")
	c.typeKeys("\r")
	c.expect("heard")
	c.expect(">>> ")
	if got, want := l.last(), strings.TrimSpace(lines); got != want {
		t.Errorf("%d bytes were pasted, the model got %d", len(want), len(got))
	}
	row := strings.Repeat("ein Wort über 世界 ", 4000)
	c.typeKeys(row + "end\r")
	c.expect("heard")
	c.expect(">>> ")
	if got, want := l.last(), row+"end"; got != want {
		t.Errorf("%d bytes were typed, the model got %d", len(want), len(got))
	}
	c.typeKeys("\x04")
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}
