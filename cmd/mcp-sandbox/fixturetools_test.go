package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// What the conformance suite asks a server to have, in the words in which it asks.

const (
	fixtureImage = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	fixtureAudio = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
)

func (f *fixture) tool(name, description string, handler server.ToolHandlerFunc, options ...mcp.ToolOption) {
	f.server.AddTool(mcp.NewTool(name, append([]mcp.ToolOption{mcp.WithDescription(description)}, options...)...), handler)
}

// says is a tool that always gives the same.
func says(content ...mcp.Content) server.ToolHandlerFunc {
	return func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: content}, nil
	}
}

func embedded(uri, kind, text string) mcp.Content {
	return mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: uri, MIMEType: kind, Text: text})
}

func (f *fixture) addTools() {
	f.tool("test_simple_text", "Simple text", says(mcp.NewTextContent("This is a simple text response for testing.")))
	f.tool("test_image_content", "An image", says(mcp.NewImageContent(fixtureImage, "image/png")))
	f.tool("test_audio_content", "Audio", says(mcp.NewAudioContent(fixtureAudio, "audio/wav")))
	f.tool("test_embedded_resource", "A resource", says(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")))
	f.tool("test_multiple_content_types", "Text, image and resource", says(
		mcp.NewTextContent("Multiple content types test:"),
		mcp.NewImageContent(fixtureImage, "image/png"),
		embedded("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`),
	))
	f.tool("test_error_handling", "Fails", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultError("This tool intentionally returns an error for testing"), nil
	})
	f.tool("test_tool_with_logging", "Logs", f.logs)
	f.tool("test_tool_with_progress", "Tells its progress", f.progresses)
	f.tool("test_sampling", "Asks the client's model", f.samples, mcp.WithString("prompt", mcp.Required()))
	f.tool("test_elicitation", "Asks the user", f.elicits("", `{"type":"object","properties":{
		"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}},
		"required":["username","email"]}`), mcp.WithString("message", mcp.Required()))
	f.tool("test_elicitation_sep1034_defaults", "Asks the user, with defaults", f.elicits("Please review", `{"type":"object","properties":{
		"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
		"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}}`))
	f.tool("test_elicitation_sep1330_enums", "Asks the user to choose", f.elicits("Please choose", `{"type":"object","properties":{
		"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
		"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"}]},
		"legacyEnum":{"type":"string","enum":["opt1","opt2"],"enumNames":["Option One","Option Two"]},
		"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2"]}},
		"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"}]}}}}`))
	f.server.AddTool(mcp.NewToolWithRawSchema("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", json.RawMessage(`{
		"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
		"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
		"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},
			"phone":{"type":"string"},"email":{"type":"string"}},
		"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
		"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},
		"then":{"required":["phone"]},"else":{"required":["email"]},"additionalProperties":false}`)), says(mcp.NewTextContent("ok")))
	f.server.AddTool(mcp.NewToolWithRawSchema("test_custom_header", "Wants its argument in a header too", json.RawMessage(`{"type":"object",
		"properties":{"region":{"type":"string","x-mcp-header":"Region"}},"required":["region"]}`)), says(mcp.NewTextContent("ok")))
}

func (f *fixture) logs(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	for i, text := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
		if i > 0 {
			time.Sleep(50 * time.Millisecond)
		}
		if err := f.server.SendLogMessageToClient(ctx, mcp.NewLoggingMessageNotification(mcp.LoggingLevelInfo, "conformance", text)); err != nil {
			return nil, err
		}
	}
	return mcp.NewToolResultText("logged"), nil
}

func (f *fixture) progresses(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if r.Params.Meta == nil || r.Params.Meta.ProgressToken == nil {
		return mcp.NewToolResultText("no token"), nil
	}
	for i, done := range []int{0, 50, 100} {
		if i > 0 {
			time.Sleep(50 * time.Millisecond)
		}
		params := map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": done, "total": 100}
		if err := f.server.SendNotificationToClient(ctx, string(mcp.MethodNotificationProgress), params); err != nil {
			return nil, err
		}
	}
	return mcp.NewToolResultText("done"), nil
}

func (f *fixture) samples(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	//lint:ignore SA1019 it is what the suite asks for
	answer, err := f.server.RequestSampling(ctx, mcp.CreateMessageRequest{CreateMessageParams: sampling(r.GetString("prompt", ""), 100)})
	if err != nil {
		return mcp.NewToolResultError(err.Error()), nil
	}
	return mcp.NewToolResultText(fmt.Sprint("LLM response: ", textOf(answer))), nil
}

func sampling(prompt string, most int) mcp.CreateMessageParams {
	return mcp.CreateMessageParams{Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent(prompt)}}, MaxTokens: most}
}

func textOf(answer *mcp.CreateMessageResult) string {
	if text, ok := answer.Content.(mcp.TextContent); ok {
		return text.Text
	}
	return fmt.Sprint(answer.Content) // as 2026-07-28 brings it, not decoded
}

// elicits is a tool that asks the user; the message "" is the call's.
func (f *fixture) elicits(message, schema string) server.ToolHandlerFunc {
	return func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		text := message
		if text == "" {
			text = r.GetString("message", "")
		}
		answer, err := f.server.RequestElicitation(ctx, mcp.ElicitationRequest{Params: elicitation(text, schema)})
		if err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		return mcp.NewToolResultText(fmt.Sprintf("Elicitation completed: action=%s, content=%v", answer.Action, answer.Content)), nil
	}
}

func elicitation(message, schema string) mcp.ElicitationParams {
	return mcp.ElicitationParams{Message: message, RequestedSchema: json.RawMessage(schema)}
}

func (f *fixture) addResources() {
	f.server.AddResource(mcp.NewResource("test://static-text", "static-text", mcp.WithResourceDescription("Text"), mcp.WithMIMEType("text/plain")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: "test://static-text", MIMEType: "text/plain", Text: "This is the content of the static text resource."}}, nil
		})
	f.server.AddResource(mcp.NewResource("test://static-binary", "static-binary", mcp.WithResourceDescription("A picture"), mcp.WithMIMEType("image/png")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.BlobResourceContents{URI: "test://static-binary", MIMEType: "image/png", Blob: fixtureImage}}, nil
		})
	f.server.AddResource(mcp.NewResource("test://watched-resource", "watched-resource", mcp.WithResourceDescription("Watched"), mcp.WithMIMEType("text/plain")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: "test://watched-resource", MIMEType: "text/plain", Text: "watched"}}, nil
		})
	f.server.AddResourceTemplate(mcp.NewResourceTemplate("test://template/{id}/data", "template", mcp.WithTemplateDescription("By id"), mcp.WithTemplateMIMEType("application/json")),
		func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(r.Params.URI, "test://template/"), "/data")
			return []mcp.ResourceContents{mcp.TextResourceContents{
				URI: r.Params.URI, MIMEType: "application/json",
				Text: fmt.Sprintf(`{"id":%q,"templateTest":true,"data":%q}`, id, "Data for ID: "+id),
			}}, nil
		})
}

func (f *fixture) prompt(name string, arguments []string, messages func(map[string]string) []mcp.Content) {
	options := []mcp.PromptOption{mcp.WithPromptDescription("A prompt of the conformance suite")}
	for _, a := range arguments {
		options = append(options, mcp.WithArgument(a, mcp.ArgumentDescription(a), mcp.RequiredArgument()))
	}
	f.server.AddPrompt(mcp.NewPrompt(name, options...), func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		result := &mcp.GetPromptResult{}
		for _, c := range messages(r.Params.Arguments) {
			result.Messages = append(result.Messages, mcp.PromptMessage{Role: mcp.RoleUser, Content: c})
		}
		return result, nil
	})
}

func (f *fixture) addPrompts() {
	f.prompt("test_simple_prompt", nil, func(map[string]string) []mcp.Content {
		return []mcp.Content{mcp.NewTextContent("This is a simple prompt for testing.")}
	})
	f.prompt("test_prompt_with_arguments", []string{"arg1", "arg2"}, func(a map[string]string) []mcp.Content {
		return []mcp.Content{mcp.NewTextContent(fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", a["arg1"], a["arg2"]))}
	})
	f.prompt("test_prompt_with_embedded_resource", []string{"resourceUri"}, func(a map[string]string) []mcp.Content {
		return []mcp.Content{
			embedded(a["resourceUri"], "text/plain", "Embedded resource content for testing."),
			mcp.NewTextContent("Please process the embedded resource above."),
		}
	})
	f.prompt("test_prompt_with_image", nil, func(map[string]string) []mcp.Content {
		return []mcp.Content{mcp.NewImageContent(fixtureImage, "image/png"), mcp.NewTextContent("Please analyze the image above.")}
	})
}
