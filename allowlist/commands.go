package allowlist

// command is one program of the list, and the rule for its arguments.
type command struct {
	name       string
	why        string                                       // what the rule keeps out; without a rule, why none is needed
	program    string                                       // the executable, where it has another name
	force      string                                       // the option that puts the program into its own safe mode; always given first
	helpers    []string                                     // the programs that it starts by itself
	noWildcard bool                                         // no wildcard in any argument: one name more is another meaning
	options    *options                                     // the options that it may get; nil = any arguments, unless walk decides
	most       int                                          // how many operands it may get; 0 = any number
	tooMany    string                                       // what one more would do, and what to write instead
	check      func(c *command, p *parsed) *Error           // what the rule says beyond its options
	walk       func(l *List, c *command, args []Arg) *Error // the rule of a program that doesn't read its options as getopt does
}

// table is the list. A rule is a list of what is allowed, never of what isn't:
// an option that a later version brings is refused until somebody has read
// what it does. The rules hold for the GNU programs, busybox's and BSD's: an
// option stands here only if none of them writes or runs anything for it, or
// refuses it as unknown.
func table() []*command {
	return append(ruled(), free()...)
}

// free are the commands that need no rule: none of their options, in the
// versions of Debian 12, when run by a tracer, wrote a file, started a program
// or opened a socket, and none that was added since does by its manual. What
// they read is bounded by what the wall shows; how long and how much, by limits.
func free() []*command {
	return []*command{
		{name: "ls", why: "lists; --hyperlink, --zero, --time= (9.x) change the text alone"},
		{name: "dir", why: "is ls"},
		{name: "pwd", why: "prints the directory"},
		{name: "cat", why: "prints; has never had an option with a file"},
		{name: "head", why: "prints"},
		{name: "tail", why: "prints; -f, --retry and --pid only wait, --debug (9.6) explains: the time limit ends them"},
		{name: "stat", why: "prints; BSD's -f and -t are formats"},
		{name: "grep", why: "prints; -f reads patterns, -P has no callouts in grep, BSD's -z and -Z decompress in the process"},
		{name: "cut", why: "prints"},
		{name: "wc", why: "prints; --files0-from reads names, --total (9.1) and --debug change the text alone"},
		{name: "tr", why: "filters its input; has no operand that is a file"},
		{name: "strings", why: "prints; @FILE reads more options, and none of them does harm, -T names a format"},
		{name: "cmp", why: "compares; -i, -n take numbers"},
		{name: "md5sum", why: "prints, or checks a list with -c: reads only"},
		{name: "sha256sum", why: "prints, or checks a list with -c: reads only"},
		{name: "shasum", why: "an applet of ours: prints, or checks a list with -c"},
		{name: "jq", why: "its language can't write or run anything; -f, -L, import, --slurpfile, --rawfile read; 1.7 and 1.8 added only output and parsing (--indent, --stream-errors, --strip-comments, --binary); there is no in-place"},
		{name: "od", why: "prints; operands are inputs, or offsets"},
		{name: "echo", why: "prints its arguments"},
		{name: "printf", why: "prints its arguments; the program, not a shell's, so without -v"},
		{name: "uname", why: "prints facts about the system"},
		{name: "printenv", why: "prints the environment, which is the sandbox's own"},
	}
}

// ruled are the commands that can do more than read, with what they may get.
func ruled() []*command {
	return []*command{
		{
			name: "find", why: "-exec, -execdir, -ok, -okdir run programs; -delete deletes; -fprint, -fprint0, -fprintf, -fls write",
			walk: checkFind,
		},
		{
			name: "awk", why: "its language runs programs, writes files and opens sockets: gawk --sandbox refuses that, no other awk does; -i and -l load code, -o, -p, -d write files in spite of the sandbox, and so does -W, which stands for any long option",
			program: "gawk", force: "--sandbox",
			options: &options{
				short: "F:v:f:e:bcChkL::MnNOPrsStV", first: true,
				long: "field-separator= assign= file= source= characters-as-bytes traditional copyright help csv lint=? bignum non-decimal-data " +
					"use-lc-numeric optimize no-optimize posix re-interval sandbox lint-old version",
				refused: []refusal{
					{"-i --include", "it loads code, and `-i inplace` changes files; leave it out: what is printed is the output"},
					{"-l --load", "it loads compiled code; leave it out"},
					{"-E --exec", "it reads further options from a program file; use -f FILE"},
					{"-o --pretty-print -p --profile -d --dump-variables", "it writes a file; leave it out, and print what you want to see"},
					{"-D --debug", "it starts the debugger, which needs a terminal; print what you want to see"},
					{"-W", "it stands for any long option; write the option itself"},
				},
			},
			check: checkAwk,
		},
		{
			name: "sed", why: "the commands e, w, W and the flags of s run programs and write files: --sandbox refuses them; -i changes files in spite of it",
			force: "--sandbox",
			options: &options{
				short: "nErsuzbe:f:l:",
				long: "quiet silent regexp-extended separate unbuffered null-data zero-terminated binary expression= file= line-length= " +
					"posix debug follow-symlinks sandbox help version",
				refused: []refusal{
					{"-i --in-place", "it changes the file; leave it out: the changed text is the output"},
				},
			},
			check: checkSed,
		},
		{
			name: "sort", why: "-o writes; --compress-program runs a program; -T chooses where temporary files go",
			options: &options{
				short: "bdfgiMhnRrVcCmsuzk:t:S:",
				long: "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting month-sort " +
					"human-numeric-sort numeric-sort random-sort random-source= reverse sort= version-sort batch-size= check=? " +
					"debug files0-from= key= merge stable buffer-size= field-separator= parallel= unique zero-terminated help version",
				refused: []refusal{
					{"-o --output", "it writes a file; leave it out: the sorted lines are the output"},
					{"--compress-program", "it runs a program; leave it out"},
					{"-T --temporary-directory", "it writes files where it says; leave it out: /tmp is used"},
				},
			},
		},
		{
			name: "uniq", why: "a second operand is the file that it writes; BSD's takes also an option behind the first for that", noWildcard: true,
			options: &options{
				short: "cdDiuzf:s:w:",
				long:  "count repeated all-repeated=? group=? skip-fields= ignore-case skip-chars= unique zero-terminated check-chars= help version",
			},
			most: 1, tooMany: "a second file would be written; give one: the result is the output",
			check: checkUniq,
		},
		{
			name: "date", why: "-s, and an operand that is no format, set the clock", noWildcard: true,
			options: &options{
				short: "uRI::d:f:r:",
				long:  "date= debug file= iso-8601=? resolution rfc-email rfc-3339= reference= utc universal help version",
				refused: []refusal{
					{"-s --set", "it sets the clock; `date -d STRING` shows another time"},
				},
			},
			most: 1, tooMany: "only one operand, the format: date '+%F %T'",
			check: checkDate,
		},
		{
			name: "file", why: "-C writes a compiled magic file, -m reads one; -z and -Z run decompressors; -p sets timestamps; -S takes its own sandbox away",
			options: &options{
				short: "bcdEhiklLnNr0sve:f:F:",
				long: "brief checking-printout debug exclude= exclude-quiet= files-from= separator= mime apple extension mime-type " +
					"mime-encoding keep-going list dereference no-dereference no-buffer no-pad print0 raw special-files help version",
				refused: []refusal{
					{"-C --compile", "it writes magic.mgc; leave it out"},
					{"-m --magic-file", "it loads a file made for another purpose; leave it out: the system's is used"},
					{"-z --uncompress -Z --uncompress-noreport", "it runs decompressors; `tar -tf` and `unzip -l` look into archives"},
					{"-p --preserve-date", "it sets timestamps; leave it out"},
					{"-S --no-sandbox", "it takes a protection away; leave it out"},
					{"-P --parameter", "its limits are left as they are; leave it out"},
				},
			},
		},
		{
			name: "tree", why: "-o writes; -R together with -H writes a file into every directory",
			walk: checkTree,
			options: &options{
				short: "acdfghilnpqrstuvxACDFJNQSUXL:P:I:H:T:",
				long: "gitignore gitfile= matchdirs metafirst ignore-case nolinks hintro= houtro= inodes device sort= dirsfirst filesfirst " +
					"filelimit= si du prune charset= timefmt= fromfile fromtabfile fflinks info infofile= noreport version help",
				refused: []refusal{
					{"-o --output", "it writes a file; leave it out: the tree is the output"},
					{"-R", "it can write a file into each directory; use -L LEVEL for the depth"},
				},
			},
		},
		{
			name: "diff", why: "-l runs pr",
			options: &options{
				short: "0123456789abBcdeEfhHinNpPqrstTuvwyZC:D:F:I:L:S:U:W:x:X:",
				long: "normal brief report-identical-files context=? unified=? ed forward-ed rcs side-by-side width= left-column " +
					"suppress-common-lines show-c-function show-function-line= label= expand-tabs initial-tab tabsize= suppress-blank-empty " +
					"recursive no-dereference new-file unidirectional-new-file ignore-file-name-case no-ignore-file-name-case exclude= " +
					"exclude-from= starting-file= from-file= to-file= ignore-case ignore-tab-expansion ignore-trailing-space " +
					"ignore-space-change ignore-all-space ignore-blank-lines ignore-matching-lines= text binary strip-trailing-cr ifdef= " +
					"old-group-format= new-group-format= unchanged-group-format= changed-group-format= line-format= old-line-format= " +
					"new-line-format= unchanged-line-format= minimal horizon-lines= speed-large-files color=? palette= help version",
				refused: []refusal{
					{"-l --paginate", "it runs pr; leave it out"},
				},
			},
		},
		{
			name: "which", why: "an applet of ours, which knows -a and -s; others' read from the terminal or run a shell",
			options: &options{short: "as"},
		},
		{
			name: "xxd", why: "a second operand is the file that it writes", noWildcard: true,
			walk: checkXxd,
		},
		{
			name: "env", why: "an operand is a program that it runs; -S, -C, -u and variables change how",
			walk: checkEnv,
		},
		{
			name: "unzip", why: "extracts unless told otherwise; a - inside an option takes the option back; -T and -d write", walk: checkUnzip,
		},
		{
			name: "tar", why: "writes unless it lists, or extracts to its output; --to-command, --checkpoint-action, -I, -F, --rsh-command, --rmt-command run programs, and so does an archive HOST:NAME; --index-file, --volno-file write also when it lists",
			helpers: []string{"bzip2", "gzip", "xz", "zstd"},
			walk:    checkTar,
			options: tarOptions(),
		},
		{
			name: "zip", why: "everything it does is writing, but for listing and help; -T and -TT run programs; - after an option takes it back", walk: checkZip,
		},
	}
}
