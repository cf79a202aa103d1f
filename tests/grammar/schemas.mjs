// Schemas whose texts ajv validates.
const node = {
  type: 'object',
  properties: {
    value: { type: 'integer' },
    children: { type: 'array', items: { $ref: '#/$defs/node' }, maxItems: 2 },
  },
  required: ['value'],
  additionalProperties: false,
};
const formats = ['binary', 'byte', 'date', 'date-time', 'duration', 'email', 'hostname', 'ipv4', 'ipv6', 'password', 'time', 'uri', 'uuid'];

export const schemas = [
  {},
  { type: 'object' },
  { type: 'string' },
  { type: 'string', minLength: 2, maxLength: 5 },
  { type: ['number', 'null'] },
  { type: 'integer', minimum: -17, maximum: 1234 },
  { type: 'integer', exclusiveMinimum: 99, exclusiveMaximum: 102 },
  { type: 'integer', maximum: -20 },
  { type: 'integer', multipleOf: 12 },
  { type: 'number', minimum: -0.5, maximum: 12.25 },
  { type: 'number', exclusiveMinimum: 0, exclusiveMaximum: 1 },
  { type: 'number', exclusiveMinimum: 1.25 },
  { type: 'number', maximum: -3.75 },
  { type: 'integer', multipleOf: 7, exclusiveMinimum: -14, maximum: 1000 },
  { type: 'integer', multipleOf: 3, minimum: 0 },
  { type: 'integer', format: 'int32' },
  ...formats.map((format) => ({ type: 'string', format })),
  { type: 'string', pattern: '^[A-Z][a-z]{1,5}(-\\d+)?$' },
  { type: 'string', pattern: '^[a-z"\\n]+$', minLength: 2, maxLength: 5 },
  { type: 'string', pattern: '^(?:(?:ab)*|x[0-9]{1,9})$', minLength: 3, maxLength: 8 },
  { type: 'string', format: 'uuid', minLength: 36, maxLength: 36 },
  { type: 'string', format: 'uri', minLength: 1, maxLength: 2083 },
  // zod's of z.email() and z.iso.datetime()
  { type: 'string', format: 'email', pattern: "^(?:[A-Za-z0-9_'+\\-]+\\.)*[A-Za-z0-9_'+\\-]*[A-Za-z0-9_+-]@(?:[A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$" },
  { type: 'string', format: 'date-time', pattern: '^(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|[13579][26]00)-02-29|\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|(?:02)-(?:0[1-9]|1\\d|2[0-8])))T(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:Z))$' },
  { type: 'string', pattern: 'a|"b\\\\|[^\\w\\s]\\n' },
  { enum: ['a', 1.5, null, [1, { b: 'c' }], { d: [] }] },
  { const: { a: 'x"y' } },
  { type: 'array', items: { type: 'boolean' }, minItems: 1, maxItems: 4 },
  { type: 'array', items: { enum: ['a', 1, null, true, 2.5] }, uniqueItems: true, minItems: 2, maxItems: 4 },
  { type: 'array', prefixItems: [{ type: 'null' }, { type: 'integer' }], items: { type: 'string' }, minItems: 1 },
  { type: 'array', prefixItems: [{ const: 1 }, { const: 2 }], items: false },
  { type: 'object', properties: { a: { type: 'null' }, ab: { type: 'integer' } } },
  { type: 'object', properties: { a: { type: 'null' }, '': { type: 'null' } }, required: ['a', 'z'], additionalProperties: { type: 'boolean' } },
  { type: 'object', additionalProperties: { type: 'integer' }, minProperties: 1 },
  { type: 'object', propertyNames: { pattern: '^[a-c]+$' }, additionalProperties: true },
  { type: 'object', patternProperties: { '^s': { type: 'string' }, '^i_': { type: 'integer' } }, additionalProperties: false },
  { type: 'object', properties: { x: { type: 'null' } }, patternProperties: { '^y': { type: 'integer' } }, additionalProperties: false },
  { $ref: '#/$defs/node', $defs: { node } },
  { anyOf: [{ type: 'string', maxLength: 3 }, { type: 'array', items: { $ref: '#' } }] },
  { type: 'integer', anyOf: [{ minimum: 10 }, { maximum: -10 }] },
  {
    oneOf: [
      { type: 'object', properties: { kind: { const: 'a' }, x: { type: 'number' } }, required: ['kind', 'x'] },
      { type: 'object', properties: { kind: { const: 'b' }, y: { type: 'string' } }, required: ['kind'] },
    ],
  },
  {
    allOf: [
      { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] },
      { properties: { a: { minimum: 3, maximum: 10 }, b: { type: 'null' } }, additionalProperties: false },
    ],
  },
];
