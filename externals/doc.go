// Package externals is the client of the user's other MCP servers, whose tools
// guest code may call: it reads the usual mcpServers file, connects to what it
// names when a tool is first asked for, and keeps to what the file allows.
//
// The servers run outside the wall, with what the file gives them. What they say
// is nevertheless taken for a stranger's: replies are capped before they are
// buffered, texts are bounded, and the secrets of the file, should a server
// repeat them, are taken out of whatever goes to a guest, to a model or to the log.
package externals
