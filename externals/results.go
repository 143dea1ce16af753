package externals

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"mcp-sandbox/sandbox"
)

// maxParts is the most that is taken of a list in a message: each costs us far more
// memory than the bytes it came in.
const maxParts = 10_000

// tooMany is a list with more than maxParts.
type tooMany struct{}

func (*tooMany) Error() string {
	return fmt.Sprintf("the reply has a list of more than %d parts: ask for less at a time", maxParts)
}

// parts are a list of a message.
type parts []json.RawMessage

// UnmarshalJSON implements json.Unmarshaler. It stops where there are too many.
func (p *parts) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	t, err := d.Token()
	switch {
	case err != nil:
		return err
	case t == nil: // null
		return nil
	case t != json.Delim('['):
		return errors.New("no list")
	}
	*p = parts{}
	for d.More() {
		if len(*p) == maxParts {
			return &tooMany{}
		}
		var one json.RawMessage
		if err := d.Decode(&one); err != nil {
			return err
		}
		*p = append(*p, one)
	}
	return nil
}

// decode reads a tool's result as it came. What it can't read is a fault of the
// server's, not of its tool.
func decode(raw json.RawMessage, secrets redactor) (sandbox.ExternalResult, error) {
	var r struct {
		Content    parts           `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
		IsError    bool            `json:"isError"`
	}
	var none sandbox.ExternalResult
	if err := json.Unmarshal(raw, &r); err != nil {
		var many *tooMany
		if errors.As(err, &many) {
			return none, many
		}
		return none, errors.New("it sent a result that is no tool's result")
	}
	if r.Content == nil && len(r.Structured) == 0 {
		return none, errors.New("it sent a result that holds nothing")
	}
	out := sandbox.ExternalResult{IsError: r.IsError}
	if len(r.Structured) > 0 && !bytes.Equal(r.Structured, []byte("null")) {
		value, ok := secrets.json(r.Structured)
		if !ok {
			return none, errors.New("its result holds a secret of its configuration, and can't be shown without it")
		}
		out.Value = value
	}
	for _, c := range r.Content {
		content, err := decodeContent(c, secrets)
		if err != nil {
			return none, err
		}
		out.Content = append(out.Content, content)
	}
	return out, nil
}

func decodeContent(raw json.RawMessage, secrets redactor) (sandbox.ExternalContent, error) {
	var c struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Data        string `json:"data"`
		MIME        string `json:"mimeType"`
		URI         string `json:"uri"`
		Name        string `json:"name"`
		Description string `json:"description"`
		Resource    struct {
			URI  string  `json:"uri"`
			MIME string  `json:"mimeType"`
			Text *string `json:"text"`
			Blob string  `json:"blob"`
		} `json:"resource"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return sandbox.ExternalContent{}, errors.New("it sent a result whose content can't be read")
	}
	out := sandbox.ExternalContent{MIME: secrets.text(c.MIME)}
	encoded := ""
	switch c.Type {
	case "text":
		out.Kind, out.Text = sandbox.ExternalText, secrets.text(c.Text)
		return out, nil
	case "image", "audio":
		out.Kind, encoded = sandbox.ExternalData, c.Data
	case "resource_link":
		out.Kind, out.Text = sandbox.ExternalLink, secrets.text(c.Description)
		out.URI, out.Name = secrets.text(c.URI), secrets.text(c.Name)
		return out, nil
	case "resource":
		out.URI, out.MIME = secrets.text(c.Resource.URI), secrets.text(c.Resource.MIME)
		if c.Resource.Text != nil {
			out.Kind, out.Text = sandbox.ExternalText, secrets.text(*c.Resource.Text)
			return out, nil
		}
		out.Kind, encoded = sandbox.ExternalData, c.Resource.Blob
	default: // of a protocol to come
		out.Kind, out.Text = sandbox.ExternalText, "["+oneLine(secrets.text(c.Type), 40)+": not understood]"
		return out, nil
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return sandbox.ExternalContent{}, fmt.Errorf("it sent %s whose data are not base64", c.Type)
	}
	out.Data = secrets.bytes(data)
	return out, nil
}
