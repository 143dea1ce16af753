// Package tools is what an MCP client sees of mcp-sandbox: the tools, their
// schemas, and the way results and faults are put into words for a model.
//
// A handler never returns an error: whatever a model can mend or should know is
// a tool result with isError, and the cause goes to the log. Only a broken
// protocol becomes a JSON-RPC error, and that is the transport's business.
package tools
