package mcp

import (
	"context"
	"net/url"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/uma-serve/uma-serve/client"
)

// whyPrefix begins the URI of one request's decisions.
const whyPrefix = "uma://why/"

// addResources declares the resources: the reports, which a client reads without a call.
func (s *Server) addResources() {
	for _, r := range []struct {
		name, description string
		read              reader
	}{
		{"info", "the model, the engine, the configuration and the memory of the daemon",
			s.report((*client.Client).Info)},
		{"models", "the models that the daemon serves", s.report((*client.Client).Models)},
		{"why", "the scheduler's decisions about the newest requests", s.why("", defaultLast)},
		{"kv", "the contents of the KV cache", s.kv(false)},
	} {
		about := &sdk.Resource{URI: "uma://" + r.name, Name: r.name, Description: r.description, MIMEType: jsonType}
		s.sdk.AddResource(about, func(ctx context.Context, q *sdk.ReadResourceRequest) (*sdk.ReadResourceResult,
			error) {
			return contentsOf(ctx, q, r.read)
		})
	}
	s.sdk.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: whyPrefix + "{request}", Name: "why-request",
		Description: "the scheduler's decisions about one request", MIMEType: jsonType},
		func(ctx context.Context, q *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			id, err := url.PathUnescape(strings.TrimPrefix(q.Params.URI, whyPrefix))
			if err != nil || id == "" {
				return nil, sdk.ResourceNotFoundError(q.Params.URI)
			}
			return contentsOf(ctx, q, s.why(id, 0))
		})
}

const jsonType = "application/json"

// contentsOf reads a resource.
func contentsOf(ctx context.Context, q *sdk.ReadResourceRequest, read reader) (*sdk.ReadResourceResult,
	error) {
	raw, err := read(ctx)
	if err != nil {
		return nil, err
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: q.Params.URI, MIMEType: jsonType,
		Text: string(raw)}}}, nil
}
