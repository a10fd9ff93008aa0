//! From functions to Cranelift IR, in any module.

use super::{Error, Expr, Function, Operator, Place};
use cranelift_codegen::Context;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, BlockArg, InstBuilder, SourceLoc, UserFuncName, Value};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc_module::cranelift_module::{FuncId, Linkage, Module, ModuleError};
use std::collections::HashMap;

/// Defines functions in a module, and remembers which there are.
pub struct Compiler {
    functions: HashMap<String, Callable>,
    /// The linkage of expressions. Functions are local.
    expressions: Linkage,
    context: Context,
    builder: FunctionBuilderContext,
}

#[derive(Clone, Copy)]
struct Callable {
    id: FuncId,
    params: usize,
}

impl Compiler {
    pub fn new(expressions: Linkage) -> Self {
        Compiler {
            functions: HashMap::new(),
            expressions,
            context: Context::new(),
            builder: FunctionBuilderContext::new(),
        }
    }

    /// Makes a function of the host known: of one parameter.
    #[allow(dead_code, reason = "not every example has one")]
    pub fn import<M: Module>(&mut self, module: &mut M, name: &str) -> Result<(), ModuleError> {
        let mut signature = module.make_signature();
        signature.params.push(AbiParam::new(I64));
        signature.returns.push(AbiParam::new(I64));
        let id = module.declare_function(name, Linkage::Import, &signature)?;
        self.functions.insert(name.to_owned(), Callable { id, params: 1 });
        Ok(())
    }

    /// Defines `functions`, which may call each other and whatever was defined before. If there is
    /// anything wrong with one of them, none is.
    pub fn define<M: Module>(
        &mut self,
        module: &mut M,
        functions: &[Function],
    ) -> Result<Vec<FuncId>, Error> {
        self.check(functions)?;
        let mut ids = Vec::new();
        for function in functions {
            let mut signature = module.make_signature();
            signature.params.resize(function.params, AbiParam::new(I64));
            signature.returns.push(AbiParam::new(I64));
            let linkage = if function.is_expression { self.expressions } else { Linkage::Local };
            let id = module
                .declare_function(&function.name.text, linkage, &signature)
                .map_err(|error| failed(function, error))?;
            let callable = Callable { id, params: function.params };
            self.functions.insert(function.name.text.clone(), callable);
            ids.push(id);
        }
        for (function, id) in functions.iter().zip(&ids) {
            self.translate(module, function, *id);
            module
                .define_function(*id, &mut self.context)
                .map_err(|error| failed(function, error))?;
        }
        Ok(ids)
    }

    fn check(&self, functions: &[Function]) -> Result<(), Error> {
        for (index, Function { name, calls, .. }) in functions.iter().enumerate() {
            let is_duplicate = |other: &Function| other.name.text == name.text;
            if self.functions.contains_key(&name.text)
                || functions[..index].iter().any(is_duplicate)
            {
                return Err(Error::new(name.place, format!("there is a `{}` already", name.text)));
            }
            for (callee, arguments) in calls {
                let new = functions.iter().find(|function| function.name.text == callee.text);
                let old = self.functions.get(&callee.text);
                let params = new.map(|new| new.params).or(old.map(|old| old.params));
                let message = match params {
                    None => format!("there is no function `{}`", callee.text),
                    Some(params) if params != *arguments => {
                        format!("`{}` takes {params} arguments, not {arguments}", callee.text)
                    }
                    Some(_) => continue,
                };
                return Err(Error::new(callee.place, message));
            }
        }
        Ok(())
    }

    /// Leaves the IR of `function` in `self.context`.
    fn translate<M: Module>(&mut self, module: &mut M, function: &Function, id: FuncId) {
        module.clear_context(&mut self.context);
        self.context.func.name = UserFuncName::user(0, id.as_u32());
        self.context.func.signature = module.declarations().get_function_decl(id).signature.clone();
        let target = module.target_config();
        let mut builder = FunctionBuilder::new(&mut self.context.func, &mut self.builder);
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        let params = builder.block_params(entry).to_vec();
        let mut body = Body { module, functions: &self.functions, params, builder };
        let result = body.value(&function.body);
        body.builder.ins().return_(&[result]);
        body.builder.seal_all_blocks();
        body.builder.finalize(target);
    }
}

impl Place {
    /// The place as Cranelift carries it.
    fn location(self) -> SourceLoc {
        SourceLoc::new((self.line as u32) << 8 | (self.column as u32).min(0xff))
    }

    /// The place of a source location.
    #[allow(dead_code, reason = "not every example has backtraces")]
    pub fn of(location: SourceLoc) -> Place {
        let bits = location.bits() as usize;
        Place { line: bits >> 8, column: bits & 0xff }
    }
}

fn failed(function: &Function, error: ModuleError) -> Error {
    Error::new(function.name.place, format!("`{}`: {error}", function.name.text))
}

/// A function that is being translated.
struct Body<'a, M> {
    module: &'a mut M,
    functions: &'a HashMap<String, Callable>,
    params: Vec<Value>,
    builder: FunctionBuilder<'a>,
}

impl<M: Module> Body<'_, M> {
    fn value(&mut self, expr: &Expr) -> Value {
        match expr {
            Expr::Number(number) => self.builder.ins().iconst(I64, *number),
            Expr::Param(index) => self.params[*index],
            Expr::Negate(inner) => {
                let inner = self.value(inner);
                self.builder.ins().ineg(inner)
            }
            Expr::Binary(operator, left, right) => {
                let (left, right) = (self.value(left), self.value(right));
                self.binary(*operator, left, right)
            }
            Expr::If { condition, yes, no } => self.choice(condition, yes, no),
            Expr::Call(name, arguments) => {
                let arguments: Vec<Value> =
                    arguments.iter().map(|argument| self.value(argument)).collect();
                self.builder.set_srcloc(name.place.location());
                let callee = self.functions[&name.text].id;
                let callee = self.module.declare_func_in_func(callee, self.builder.func);
                let call = self.builder.ins().call(callee, &arguments);
                self.builder.inst_results(call)[0]
            }
        }
    }

    fn choice(&mut self, condition: &Expr, yes: &Expr, no: &Expr) -> Value {
        let condition = self.value(condition);
        let [then, otherwise, after] = [(); 3].map(|()| self.builder.create_block());
        let result = self.builder.append_block_param(after, I64);
        self.builder.ins().brif(condition, then, &[], otherwise, &[]);
        for (block, expr) in [(then, yes), (otherwise, no)] {
            self.builder.switch_to_block(block);
            let value = self.value(expr);
            self.builder.ins().jump(after, &[BlockArg::Value(value)]);
        }
        self.builder.switch_to_block(after);
        result
    }

    fn binary(&mut self, operator: Operator, left: Value, right: Value) -> Value {
        let condition = match operator {
            Operator::Add => return self.builder.ins().iadd(left, right),
            Operator::Subtract => return self.builder.ins().isub(left, right),
            Operator::Multiply => return self.builder.ins().imul(left, right),
            Operator::Divide => return self.quotient(left, right),
            Operator::Remainder => {
                let quotient = self.quotient(left, right);
                let product = self.builder.ins().imul(quotient, right);
                return self.builder.ins().isub(left, product);
            }
            Operator::Equal => IntCC::Equal,
            Operator::NotEqual => IntCC::NotEqual,
            Operator::Less => IntCC::SignedLessThan,
            Operator::LessOrEqual => IntCC::SignedLessThanOrEqual,
            Operator::Greater => IntCC::SignedGreaterThan,
            Operator::GreaterOrEqual => IntCC::SignedGreaterThanOrEqual,
        };
        let holds = self.builder.ins().icmp(condition, left, right);
        self.builder.ins().uextend(I64, holds)
    }

    /// `sdiv` traps for two divisors, so these never get there: the quotient is 0 for 0, and what
    /// is divided, negated, for -1.
    fn quotient(&mut self, left: Value, right: Value) -> Value {
        let ins = &mut self.builder;
        let is_zero = ins.ins().icmp_imm_s(IntCC::Equal, right, 0);
        let is_minus_one = ins.ins().icmp_imm_s(IntCC::Equal, right, -1);
        let is_special = ins.ins().bor(is_zero, is_minus_one);
        let one = ins.ins().iconst(I64, 1);
        let divisor = ins.ins().select(is_special, one, right);
        let quotient = ins.ins().sdiv(left, divisor);
        let negated = ins.ins().ineg(left);
        let zero = ins.ins().iconst(I64, 0);
        let special = ins.ins().select(is_zero, zero, negated);
        ins.ins().select(is_special, special, quotient)
    }
}
