--  Exceptions of Ada: finalization, messages, tasks, abort, uncaught.
with Ada.Text_IO; use Ada.Text_IO;
with Ada.Exceptions; use Ada.Exceptions;
with Ada.Finalization;
procedure Raises is
   My_Error : exception;
   type Note is new Ada.Finalization.Limited_Controlled with record
      N : Integer := 0;
   end record;
   overriding procedure Finalize (X : in out Note);
   Finalized : Integer := 0;
   pragma Atomic (Finalized);
   overriding procedure Finalize (X : in out Note) is
   begin
      Finalized := Finalized + X.N;
   end Finalize;
   procedure Deep (N : Integer) is
      X : Note;
   begin
      X.N := 1;
      if N = 0 then
         raise My_Error with "deep";
      end if;
      Deep (N - 1);
   end Deep;
   function Divide (A, B : Integer) return Integer is (A / B);
   type Arr is array (1 .. 10) of Integer;
   A : Arr := (others => 1);
   function Index (I : Integer) return Integer is (A (I));
   Caught, Constraint, Program, Reraised : Integer := 0;
   task type Worker is
      entry Start (N : Integer);
      entry Result (C : out Integer);
   end Worker;
   task body Worker is
      Depth, Count : Integer := 0;
   begin
      accept Start (N : Integer) do
         Depth := N;
      end Start;
      for I in 1 .. 500 loop
         begin
            Deep (Depth);
         exception
            when My_Error => Count := Count + 1;
         end;
      end loop;
      accept Result (C : out Integer) do
         C := Count;
      end Result;
   end Worker;
   task type Fails;
   task body Fails is
   begin
      Deep (3);
   end Fails;
   Workers : array (1 .. 4) of Worker;
   C : Integer;
begin
   for I in 1 .. 2000 loop
      begin
         Deep (I mod 20);
      exception
         when E : My_Error =>
            if Exception_Message (E) = "deep" then
               Caught := Caught + 1;
            end if;
      end;
   end loop;
   Put_Line ("caught" & Caught'Image & ", finalized" & Finalized'Image);
   for I in 0 .. 20 loop
      begin
         C := Divide (10, I mod 3) + Index (I);
      exception
         when Constraint_Error => Constraint := Constraint + 1;
      end;
   end loop;
   Put_Line ("constraint" & Constraint'Image);
   for I in 1 .. 100 loop
      begin
         begin
            Deep (I mod 5);
         exception
            when Constraint_Error => Put_Line ("wrong");
            when others => Reraised := Reraised + 1; raise;
         end;
      exception
         when E : others =>
            if Exception_Name (E) = "RAISES.MY_ERROR" then
               Program := Program + 1;
            end if;
      end;
   end loop;
   Put_Line ("reraised" & Reraised'Image & Program'Image);
   for I in Workers'Range loop
      Workers (I).Start (I * 3);
   end loop;
   for I in Workers'Range loop
      Workers (I).Result (C);
      Put_Line ("task" & C'Image);
   end loop;
   declare
      F : Fails;
   begin
      null;
   end;
   select
      delay 0.05;
      Put_Line ("aborted");
   then abort
      loop
         begin
            Deep (4);
         exception
            when My_Error => null;
         end;
      end loop;
   end select;
   Deep (2);
end Raises;
