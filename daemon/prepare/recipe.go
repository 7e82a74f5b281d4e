package prepare

import (
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// A request can make a model of another one (store.Recipe). Its engine process has the other model's weights and the
// recipe: defaults of a request's fields, a system message, a template (config.TemplateFor).

// Defaults returns the defaults of a request's fields: the recipe's, then those of --defaults; nil:
// wire.DefaultRequest.
func Defaults(cfg *config.Config) (*wire.Request, error) {
	name, fields := "--defaults", cfg.Defaults
	if cfg.Recipe != nil && len(cfg.Recipe.Fields) > 0 {
		var err error
		name = "the parameters of " + cfg.Recipe.Name
		if fields, err = config.MergeDefaults(fields, string(cfg.Recipe.Fields)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if fields == "" {
		return nil, nil
	}
	def, err := wire.DefaultsWith([]byte(fields))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &def, nil
}

// WithSystem adds the recipe's system message to a chat that has none.
func WithSystem(cfg *config.Config, w *wire.Request) {
	if cfg.Recipe == nil || cfg.Recipe.System == "" || len(w.Messages) == 0 {
		return
	}
	instructs := func(m wire.Message) bool { return m.Role == "system" || m.Role == "developer" }
	if slices.ContainsFunc(w.Messages, instructs) {
		return
	}
	w.Messages = append([]wire.Message{{Role: "system", Content: cfg.Recipe.System}}, w.Messages...)
}
