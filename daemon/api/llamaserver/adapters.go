package llamaserver

import (
	"net/http"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// adapter is an entry of the list of adapters.
type adapter struct {
	ID         int     `json:"id"`
	Path       string  `json:"path"`
	Scale      float32 `json:"scale"`
	TaskName   string  `json:"task_name"`     // always empty
	Prefix     string  `json:"prompt_prefix"` // always empty
	Name       string  `json:"name"`          // llama-server does not have it
	Invocation []int32 `json:"alora_invocation_tokens,omitempty"`
}

func serveAdapters(s *api.Server, w http.ResponseWriter, _ *http.Request) {
	out := []adapter{}
	for _, a := range s.Adapters() {
		out = append(out, adapter{ID: a.ID, Path: a.Path, Scale: a.Scale, Name: a.Name, Invocation: a.Invocation})
	}
	s.NewWriter(w).JSON(http.StatusOK, out)
}

// serveScales sets the scales of requests that choose no adapters: a list of {"id", "scale"}, 0 where it has none.
func serveScales(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	body, err := api.ReadBody(r)
	var list []wire.LoRA
	if err == nil {
		list, err = wire.ParseLoRA(body)
	}
	if err == nil && !s.Administers(r) {
		out.JSON(http.StatusForbidden, failure{details{http.StatusForbidden, "only root and the user of uma-serve " +
			"may set the adapters of all requests; a request chooses its adapters by \"lora\" or \"model\", and " +
			"--allow-model-changes lets every client set them", "permission_error"}})
		return
	}
	if err == nil {
		err = s.SetScales(list)
	}
	if err != nil {
		fail(out, err)
		return
	}
	out.JSON(http.StatusOK, struct {
		Success bool `json:"success"`
	}{true})
}
