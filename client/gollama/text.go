package llama

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/uma-serve/uma-serve/client"
)

// TokenizeString returns the number of the tokens of text, and the tokens, with the one that begins a text where the
// model has one. SetTokens bounds nothing here.
func (l *LLama) TokenizeString(text string, _ ...PredictOption) (int32, []int32, error) {
	var got struct {
		Tokens []int32 `json:"tokens"`
	}
	err := l.post("/tokenize", map[string]any{"content": text, "add_special": true, "parse_special": true}, &got)
	if err != nil {
		return 0, nil, err
	}
	return int32(len(got.Tokens)), got.Tokens, nil
}

// Embeddings returns the embedding of text. New must have had EnableEmbeddings.
func (l *LLama) Embeddings(text string, _ ...PredictOption) ([]float32, error) {
	return l.embed(text)
}

// TokenEmbeddings returns the embedding of a text given as tokens. New must have had EnableEmbeddings.
func (l *LLama) TokenEmbeddings(tokens []int, _ ...PredictOption) ([]float32, error) {
	return l.embed(tokens)
}

func (l *LLama) embed(input any) ([]float32, error) {
	if !l.embeddings {
		return nil, errors.New("the model was opened without EnableEmbeddings")
	}
	var got struct {
		Data []struct {
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	err := l.post("/v1/embeddings", map[string]any{"model": l.info.Model.Name, "input": input}, &got)
	if err != nil {
		return nil, err
	}
	if len(got.Data) != 1 || len(got.Data[0].Embedding) == 0 {
		return nil, errors.New("the daemon's answer has no embedding")
	}
	return got.Data[0].Embedding, nil
}

// maxReply bounds an answer to post: the tokens of a prompt, or an embedding.
const maxReply = 64 << 20

// post asks the daemon's HTTP side, on the same socket.
func (l *LLama) post(path string, body, into any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	web := client.HTTP(l.c.Socket())
	defer web.CloseIdleConnections()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://uma"+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err = io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	if err != nil {
		return err
	}
	if len(b) > maxReply {
		return fmt.Errorf("the daemon's answer to %s is larger than %d bytes", path, maxReply)
	}
	if resp.StatusCode != http.StatusOK {
		var e struct {
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if json.Unmarshal(b, &e) == nil && e.Error.Message != "" {
			return errors.New(e.Error.Message)
		}
		return fmt.Errorf("the daemon answered %s to %s", resp.Status, path)
	}
	return json.Unmarshal(b, into)
}
