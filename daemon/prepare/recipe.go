package prepare

import (
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Of a model that was made of another one by a request (store.Recipe), an engine process has the weights of the other
// one, and the recipe: defaults of the fields of requests, a system message, a template (config.TemplateFor).

// Defaults returns the defaults of requests: those of --defaults, and of the recipe before them; nil: those of every
// model.
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

// WithSystem gives a chat without a system message that of the model's recipe.
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
