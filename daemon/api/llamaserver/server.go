package llamaserver

import (
	"net/http"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/llamaform"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// serveHealth answers GET /v1/health like llama-server; GET /health says more.
func serveHealth(s *api.Server, w http.ResponseWriter, _ *http.Request) {
	out, h := s.NewWriter(w), s.Health()
	switch h.Status {
	case "ok":
		out.JSON(http.StatusOK, struct {
			Status string `json:"status"`
		}{h.Status})
	case "loading":
		fail(out, loading())
	default:
		fail(out, &api.Error{Code: wire.ShuttingDown, Message: "the server is " + h.Status})
	}
}

// props answers GET /props.
type props struct {
	Default struct {
		Params  *llamaform.Settings `json:"params"`
		Context int                 `json:"n_ctx"`
	} `json:"default_generation_settings"`
	Slots      int        `json:"total_slots"`
	Alias      string     `json:"model_alias"`
	FileType   string     `json:"model_ftype"`
	Path       string     `json:"model_path"`
	Modalities modalities `json:"modalities"`
	HasSlots   bool       `json:"endpoint_slots"`
	HasProps   bool       `json:"endpoint_props"`
	HasMetrics bool       `json:"endpoint_metrics"`
	Template   string     `json:"chat_template"`
	BOS        string     `json:"bos_token"`
	EOS        string     `json:"eos_token"`
	Build      string     `json:"build_info"`
	Sleeping   bool       `json:"is_sleeping"`
	Role       string     `json:"role"`
	*routing              // of a router
}

// routing has the fields of GET /props of a daemon that was started without a model.
type routing struct {
	Max  int  `json:"max_instances"`
	Auto bool `json:"models_autoload"`
}

// Roles of GET /props.
const (
	roleModel  = "model"
	roleRouter = "router"
)

type modalities struct {
	Vision bool `json:"vision"`
	Video  bool `json:"video"`
	Audio  bool `json:"audio"`
}

func serveProps(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out, facts := s.NewWriter(w), s.Facts()
	if facts == nil {
		fail(out, loading())
		return
	}
	def := s.DefaultsOrWire()
	p := props{
		Slots: facts.Parallel, Alias: s.Model(), FileType: facts.FileType(), Path: facts.Model.Path,
		HasSlots:   !s.NoSlots,
		HasMetrics: true, Sleeping: facts.Asleep,
		Template: facts.Template, BOS: facts.BOS, EOS: facts.EOS, Build: "b-" + s.Version,
		Role: roleModel,
	}
	if facts.Router != nil && !r.URL.Query().Has("model") {
		p.Role, p.routing = roleRouter, &routing{facts.Router.Max, facts.Router.Auto}
	}
	p.Modalities.Vision, p.Modalities.Audio = facts.Model.Images.See(), facts.Model.Images.Hear()
	p.Default.Params, p.Default.Context = llamaform.SettingsOf(&def, facts, true), facts.Context
	out.JSON(http.StatusOK, &p)
}

var controlTable = append(api.Of(api.Taken, "id", "action"), api.Of(api.Ignored, "model")...)

// Actions of /v1/chat/completions/control. llama-server has no cancel.
const (
	actionEndThink = "reasoning_end"
	actionCancel   = "cancel"
)

// serveControl answers POST /v1/chat/completions/control: it ends the thinking of an answer, or cancels it.
func serveControl(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	var in struct {
		ID     string `json:"id"`
		Action string `json:"action"`
	}
	_, err := readTable(r, controlTable, &in, false)
	switch {
	case err != nil:
	case in.ID == "":
		err = api.Refuse(`field "id" is missing; it must be the id of a completion`)
	case in.Action != actionEndThink && in.Action != actionCancel:
		err = api.Refusef("field \"action\" is %.40q; it must be %q or %q", in.Action, actionEndThink, actionCancel)
	}
	if err != nil {
		fail(out, err)
		return
	}
	var done struct {
		Success bool   `json:"success"`
		Message string `json:"message,omitempty"`
	}
	if in.Action == actionCancel {
		done.Success = s.Cancel(r.Context(), in.ID)
	} else {
		done.Success = s.EndThink(r.Context(), in.ID)
	}
	if !done.Success {
		done.Message = "no active completion for this id"
	}
	out.JSON(http.StatusOK, &done)
}
