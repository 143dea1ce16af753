package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Tools that ask their caller for more, as revision 2026-07-28 has it: the answer
// names what is wanted, and the caller sends the request again with that.

func oneField(name string) string {
	return fmt.Sprintf(`{"type":"object","properties":{%q:{"type":"string"}},"required":[%[1]q]}`, name)
}

const confirmation = `{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`

func (f *fixture) addInputTools() {
	name := elicitation("What is your name?", oneField("name"))
	f.tool("test_input_required_result_elicitation", "Asks for a name", input(func(r mcp.CallToolRequest) *mcp.CallToolResult {
		if answer := accepted(r, "user_name"); answer != nil {
			return mcp.NewToolResultText(fmt.Sprintf("Hello, %v!", answer["name"]))
		}
		return server.NewInputRequestBuilder("").Elicit("user_name", name).ToolResult()
	}))
	f.tool("test_input_required_result_sampling", "Asks a model", input(func(r mcp.CallToolRequest) *mcp.CallToolResult {
		if answer := server.SamplingResponse(r.Params.InputResponses, "capital_question"); answer != nil {
			return mcp.NewToolResultText(textOf(answer))
		}
		return server.NewInputRequestBuilder("").Sample("capital_question", sampling("What is the capital of France?", 100)).ToolResult()
	}))
	f.tool("test_input_required_result_list_roots", "Asks for roots", input(func(r mcp.CallToolRequest) *mcp.CallToolResult {
		if answer := server.RootsResponse(r.Params.InputResponses, "client_roots"); answer != nil {
			return mcp.NewToolResultText(fmt.Sprint(answer.Roots))
		}
		return server.NewInputRequestBuilder("").Roots("client_roots").ToolResult()
	}))
	f.tool("test_input_required_result_request_state", "Asks, and remembers by the caller", input(func(r mcp.CallToolRequest) *mcp.CallToolResult {
		if accepted(r, "confirm") != nil && r.Params.RequestState == "asked" {
			return mcp.NewToolResultText("state-ok")
		}
		return server.NewInputRequestBuilder("asked").Elicit("confirm", elicitation("Please confirm", confirmation)).ToolResult()
	}))
	f.tool("test_input_required_result_multiple_inputs", "Asks three things at once", input(func(r mcp.CallToolRequest) *mcp.CallToolResult {
		greeting := server.SamplingResponse(r.Params.InputResponses, "greeting")
		roots := server.RootsResponse(r.Params.InputResponses, "client_roots")
		if who := accepted(r, "user_name"); who != nil && greeting != nil && roots != nil && r.Params.RequestState == "three" {
			return mcp.NewToolResultText(fmt.Sprint(textOf(greeting), who["name"], roots.Roots))
		}
		return server.NewInputRequestBuilder("three").Elicit("user_name", name).
			Sample("greeting", sampling("Generate a greeting", 50)).Roots("client_roots").ToolResult()
	}))
	f.tool("test_input_required_result_multi_round", "Asks twice", input(func(r mcp.CallToolRequest) *mcp.CallToolResult {
		switch state := r.Params.RequestState; {
		case state == "2" && accepted(r, "step2") != nil:
			return mcp.NewToolResultText(fmt.Sprint("Your color is ", accepted(r, "step2")["color"]))
		case state == "2", state == "1" && accepted(r, "step1") != nil:
			return server.NewInputRequestBuilder("2").Elicit("step2", elicitation("Step 2: What is your favorite color?", oneField("color"))).ToolResult()
		default:
			return server.NewInputRequestBuilder("1").Elicit("step1", elicitation("Step 1: What is your name?", oneField("name"))).ToolResult()
		}
	}))
	f.server.AddPrompt(mcp.NewPrompt("test_input_required_result_prompt", mcp.WithPromptDescription("Asks for its context")), asksForContext)
}

// addProbes adds what the suite sees into the server by.
func (f *fixture) addProbes() {
	f.tool("test_input_required_result_tampered_state", "Believes its own state alone", f.signs)
	f.tool("test_input_required_result_capabilities", "Asks what its caller can answer", asksWhatItMay)
	f.tool("test_streaming_elicitation", "Asks for a name", input(func(mcp.CallToolRequest) *mcp.CallToolResult {
		return server.NewInputRequestBuilder("").Elicit("user_name", elicitation("What is your name?", oneField("name"))).ToolResult()
	}))
	f.tool("test_missing_capability", "Needs sampling", func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if able := capabilities(ctx); able.Sampling == nil {
			return nil, mcp.MissingRequiredClientCapabilityError{Capability: "sampling"}
		}
		return mcp.NewToolResultText("ok"), nil
	})
	f.tool("test_logging_tool", "Logs", f.logs)
	f.tool("test_trigger_tool_change", "Adds a tool", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		f.tool(fmt.Sprint("test_added_", time.Now().UnixNano()), "Added", says(mcp.NewTextContent("ok")))
		return mcp.NewToolResultText("added"), nil
	})
	f.tool("test_trigger_prompt_change", "Adds a prompt", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		f.prompt(fmt.Sprint("test_added_", time.Now().UnixNano()), nil, func(map[string]string) []mcp.Content {
			return []mcp.Content{mcp.NewTextContent("ok")}
		})
		return mcp.NewToolResultText("added"), nil
	})
}

func asksForContext(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	answer := server.ElicitationResponse(r.Params.InputResponses, "user_context")
	if answer == nil {
		return server.NewInputRequestBuilder("").Elicit("user_context", elicitation("What context should the prompt use?", oneField("context"))).PromptResult(), nil
	}
	return &mcp.GetPromptResult{Messages: []mcp.PromptMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent(fmt.Sprint(answer.Content))}}}, nil
}

func input(handle func(mcp.CallToolRequest) *mcp.CallToolResult) server.ToolHandlerFunc {
	return func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) { return handle(r), nil }
}

// accepted is what the user filled in; nil if they did not.
func accepted(r mcp.CallToolRequest, id string) map[string]any {
	answer := server.ElicitationResponse(r.Params.InputResponses, id)
	if answer == nil || answer.Action != mcp.ElicitationResponseActionAccept {
		return nil
	}
	fields, _ := answer.Content.(map[string]any)
	return fields
}

// signs gives a state that it knows again.
func (f *fixture) signs(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	const said = "asked"
	mac := hmac.New(sha256.New, []byte("conformance"))
	mac.Write([]byte(said))
	state := said + "." + hex.EncodeToString(mac.Sum(nil))
	switch given := r.Params.RequestState; {
	case given == "":
		return server.NewInputRequestBuilder(state).Elicit("confirm", elicitation("Please confirm", confirmation)).ToolResult(), nil
	case !hmac.Equal([]byte(given), []byte(state)):
		return nil, fmt.Errorf("%w: the request state is none of ours", mcp.ErrInvalidParams)
	default:
		return mcp.NewToolResultText("ok"), nil
	}
}

func capabilities(ctx context.Context) mcp.ClientCapabilities {
	if info := server.RequestProtocolInfoFromContext(ctx); info != nil && info.ClientCapabilities != nil {
		return *info.ClientCapabilities
	}
	return mcp.ClientCapabilities{}
}

func asksWhatItMay(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if len(r.Params.InputResponses) > 0 {
		return mcp.NewToolResultText("ok"), nil
	}
	able, ask := capabilities(ctx), server.NewInputRequestBuilder("")
	if able.Sampling != nil {
		ask.Sample("greeting", sampling("Generate a greeting", 50))
	}
	if able.Elicitation != nil {
		ask.Elicit("user_name", elicitation("What is your name?", oneField("name")))
	}
	return ask.ToolResult(), nil
}
