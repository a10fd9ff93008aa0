"""Rules that compile units of CLIF and merge functions across them.

clif_unit is a unit with its summary; clif_objects combines the summaries of units to a map for each, and compiles each unit
with its own. The objects can be sources of a cc_library or cc_binary; clif_program links them with `cc`, so that this example
needs no other rules.
"""

ClifUnitInfo = provider(
    "A unit and its summary.",
    fields = {
        "name": "the name of the unit, unique in a program",
        "options": "what it is summarised and compiled with",
        "src": "the unit",
        "summary": "its summary",
    },
)

_CLIF_MERGE = attr.label(
    default = "//:clif_merge",
    allow_single_file = True,
    cfg = "exec",
)

def _clif_unit_impl(ctx):
    # Units of different packages may have one name. A map has the name of its unit, which is no path.
    name = "/".join([ctx.label.package, ctx.label.name]).strip("/").replace("/", ".")
    src = ctx.file.src
    summary = ctx.actions.declare_file(ctx.label.name + ".summary")
    ctx.actions.run(
        executable = ctx.file._clif_merge,
        arguments = ["summarize", "--quiet", "--name", name] + ctx.attr.options + [src.path, "-o", summary.path],
        inputs = [src],
        outputs = [summary],
        mnemonic = "ClifSummarize",
        progress_message = "summarize " + name,
    )
    return [
        DefaultInfo(files = depset([summary])),
        ClifUnitInfo(name = name, options = ctx.attr.options, src = src, summary = summary),
    ]

clif_unit = rule(
    doc = "A unit, and its summary.",
    implementation = _clif_unit_impl,
    attrs = {
        "options": attr.string_list(
            doc = "Target and settings, such as [\"--target\", \"x86_64\"]; the same for all units of a program.",
        ),
        "src": attr.label(
            allow_single_file = [".clif"],
            mandatory = True,
        ),
        "_clif_merge": _CLIF_MERGE,
    },
)

def _clif_objects_impl(ctx):
    units = [unit[ClifUnitInfo] for unit in ctx.attr.units]
    directory = ctx.label.name + ".maps"
    maps = [ctx.actions.declare_file("%s/%s.map" % (directory, unit.name)) for unit in units]
    summaries = [unit.summary for unit in units]
    combine = ctx.actions.args()
    combine.add_all(["combine", "--quiet", "--similar", ctx.attr.similar])
    combine.add_all(summaries)
    combine.add("--parts", maps[0].dirname)
    ctx.actions.run(
        executable = ctx.file._clif_merge,
        arguments = [combine],
        inputs = summaries,
        outputs = maps,
        mnemonic = "ClifCombine",
        progress_message = "combine",
    )
    objects = []
    for unit, map in zip(units, maps):
        object = ctx.actions.declare_file("%s.objects/%s.o" % (ctx.label.name, unit.name))
        ctx.actions.run(
            executable = ctx.file._clif_merge,
            arguments = ["compile", "--quiet", "--jobs", "1", "--map", map.path] +
                        unit.options + [unit.src.path, "-o", object.path],
            inputs = [unit.src, map],
            outputs = [object],
            mnemonic = "ClifCompile",
            progress_message = "compile " + unit.name,
        )
        objects.append(object)
    return [DefaultInfo(files = depset(objects))]

clif_objects = rule(
    doc = "The objects of units that share bodies.",
    implementation = _clif_objects_impl,
    attrs = {
        "similar": attr.string(
            doc = "Which functions that differ only in constants and callees share bodies.",
            default = "balanced",
            values = ["off", "balanced", "size"],
        ),
        "units": attr.label_list(
            providers = [ClifUnitInfo],
            mandatory = True,
            allow_empty = False,
        ),
        "_clif_merge": _CLIF_MERGE,
    },
)

def _clif_program_impl(ctx):
    program = ctx.actions.declare_file(ctx.label.name)
    inputs = ctx.files.srcs + ctx.files.objects
    ctx.actions.run_shell(
        command = "cc -O1 \"$@\"",
        arguments = [input.path for input in inputs] + ["-o", program.path],
        inputs = inputs,
        outputs = [program],
        use_default_shell_env = True,
        mnemonic = "ClifLink",
        progress_message = "link " + ctx.label.name,
    )
    return [DefaultInfo(files = depset([program]), executable = program)]

clif_program = rule(
    doc = "A program of C sources and objects.",
    implementation = _clif_program_impl,
    attrs = {
        "objects": attr.label_list(allow_files = [".o"]),
        "srcs": attr.label_list(allow_files = [".c"]),
    },
    executable = True,
)
