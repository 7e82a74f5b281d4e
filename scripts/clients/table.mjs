// table.mjs KIND ROWS [DOCUMENT]: print the features that failed, and write the table of KIND (library or agent) between
// its marks in DOCUMENT. Fails if a feature failed or there are no rows.
import { readFileSync, writeFileSync } from 'node:fs'

const [kind, file, document] = process.argv.slice(2)
const rows = readFileSync(file, 'utf8').split('\n').filter(Boolean).map(JSON.parse)
const failed = rows.filter(r => !r.ok)

const short = text => text.replace(/\s+/g, ' ').slice(0, 160)
for (const r of failed) console.error(`FAIL ${r.client} ${r.version}: ${r.feature}: ${short(r.error)}`)
console.log(`${rows.length - failed.length} of ${rows.length} features of ${new Set(rows.map(r => r.client)).size} clients work`)

if (document) {
  // One line for each client and result: the passing features together, a failing one with its error.
  const lines = ['| client | version | feature | result |', '|---|---|---|---|']
  const cell = text => text.replace(/\s+/g, ' ').replaceAll('|', '\\|')
  for (const client of new Set(rows.map(r => r.client))) {
    const own = rows.filter(r => r.client === client)
    const works = own.filter(r => r.ok).map(r => r.feature)
    if (works.length) lines.push(`| ${client} | ${own[0].version} | ${cell(works.join('; '))} | works |`)
    for (const r of own.filter(r => !r.ok)) {
      lines.push(`| ${client} | ${r.version} | ${cell(r.feature)} | **fails**: ${cell(r.error)} |`)
    }
  }
  const [begin, end] = [`<!-- begin ${kind} table: make clients -->`, `<!-- end ${kind} table -->`]
  const text = readFileSync(document, 'utf8')
  const [from, to] = [text.indexOf(begin), text.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`${document} has no marks "${begin}" and "${end}"`)
  writeFileSync(document, `${text.slice(0, from)}${begin}\n${lines.join('\n')}\n${text.slice(to)}`)
}
process.exit(rows.length === 0 || failed.length ? 1 : 0)
